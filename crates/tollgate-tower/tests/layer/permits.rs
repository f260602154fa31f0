//! Permits of a concurrency limit, for as long as an answer takes.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer as _, ServiceExt as _};

use crate::{free_places, is_pending, one_in_flight, request, text};

#[tokio::test]
async fn a_place_is_held_while_the_service_works() {
    let layer = one_in_flight();
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let finished = std::sync::Arc::new(tokio::sync::Mutex::new(Some(finished)));
    let service = layer.layer(tower::service_fn(move |_: Request<()>| {
        let finished = std::sync::Arc::clone(&finished);
        async move {
            let finished = finished.lock().await.take();
            finished.expect("one call").await.unwrap();
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    }));
    let mut first = Box::pin(service.clone().oneshot(request()));
    assert!(is_pending(&mut first).await);
    let second = service.oneshot(request()).await.unwrap();
    assert_eq!(second.status(), 429);
    assert_eq!(second.headers().get("retry-after"), None); // nobody knows
    finish.send(()).unwrap();
    let answer = first.await.unwrap();
    assert_eq!(
        text(answer.headers(), "ratelimit-policy"),
        Some(r#""in-flight";q=1;qu="concurrent-requests""#)
    );
    assert_eq!(free_places(&layer), 1); // of an empty answer there is nothing to wait for
}

#[tokio::test]
async fn an_error_of_the_service_is_passed_on_and_frees_the_place() {
    let layer = one_in_flight();
    let service = layer.layer(tower::service_fn(async |_: Request<()>| {
        Err::<Response<Full<Bytes>>, _>(io::Error::other("broken"))
    }));
    for _ in 0..2 {
        assert_eq!(service.clone().oneshot(request()).await.unwrap_err().to_string(), "broken");
    }
    assert_eq!(free_places(&layer), 1);
}
