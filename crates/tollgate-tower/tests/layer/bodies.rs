//! Bodies come through as they are, and hold a place until they end.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use tollgate_tower::{ResponseBody, TollgateLayer};
use tower::{Layer as _, ServiceExt as _};

use crate::{free_places, one_in_flight, request};

/// The body of an answer, behind the layer.
async fn through<R: Body<Data = Bytes>>(
    layer: &TollgateLayer,
    body: impl Fn() -> R + Clone,
) -> ResponseBody<R> {
    let service = tower::service_fn(move |_: Request<()>| {
        let answer = Response::new(body());
        async { Ok::<_, Infallible>(answer) }
    });
    layer.layer(service).oneshot(request()).await.unwrap().into_body()
}

/// A body that does not know its end before it has come.
fn stream_of(frames: Vec<io::Result<Frame<Bytes>>>) -> impl Body<Data = Bytes, Error = io::Error> + Unpin {
    StreamBody::new(stream::iter(frames))
}

fn data(text: &'static str) -> io::Result<Frame<Bytes>> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))])
}

#[tokio::test]
async fn a_place_is_free_when_the_last_frame_is_handed_out() {
    let layer = one_in_flight();
    let mut body = through(&layer, || Full::<Bytes>::from("whole")).await;
    assert_eq!(free_places(&layer), 0);
    assert_eq!(body.size_hint().exact(), Some(5));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "whole");
    assert_eq!(free_places(&layer), 1);
    assert!(body.is_end_stream() && body.frame().await.is_none());
}

#[tokio::test]
async fn a_place_is_held_until_a_stream_has_ended() {
    let layer = one_in_flight();
    let mut body = through(&layer, || stream_of(vec![data("a"), data("b")])).await;
    for piece in ["a", "b"] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
        assert_eq!(free_places(&layer), 0);
    }
    assert!(body.frame().await.is_none());
    assert_eq!(free_places(&layer), 1);
}

#[tokio::test]
async fn trailers_come_through_and_end_it() {
    let layer = one_in_flight();
    let mut body = through(&layer, || stream_of(vec![data("a"), Ok(Frame::trailers(trailers()))])).await;
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
    assert_eq!(free_places(&layer), 0);
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers());
    assert_eq!(free_places(&layer), 1);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn an_error_comes_through_and_ends_it() {
    let layer = one_in_flight();
    let mut body = through(&layer, || stream_of(vec![data("a"), Err(io::Error::other("broken"))])).await;
    body.frame().await.unwrap().unwrap();
    assert_eq!(free_places(&layer), 0);
    assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "broken");
    assert_eq!(free_places(&layer), 1);
}

#[tokio::test]
async fn whoever_drops_an_answer_frees_its_place() {
    let layer = one_in_flight();
    let mut body = through(&layer, || stream_of(vec![data("a"), data("b")])).await;
    body.frame().await.unwrap().unwrap();
    assert_eq!(free_places(&layer), 0);
    drop(body);
    assert_eq!(free_places(&layer), 1);
}

#[tokio::test]
async fn an_empty_answer_holds_nothing() {
    let layer = one_in_flight();
    let body = through(&layer, Full::<Bytes>::default).await;
    assert_eq!(free_places(&layer), 1);
    assert!(body.is_end_stream());
}
