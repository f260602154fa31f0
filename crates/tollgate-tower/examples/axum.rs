//! An axum application behind limits: `cargo run -p tollgate-tower --example axum`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tollgate_policy::{Engine, Policy};
use tollgate_tower::TollgateLayer;

/// What a file would have. `tollgate check` reads it, too.
const POLICY: &str = "
limits:
  - name: per-user             # the user where there is one, else the address
    key: [user|ip]
    token_bucket: { rate: 10/min, burst: 3 }

  - name: reports              # one every two seconds: those who come sooner are held
    match: { path: /report }
    key: []
    leaky_bucket: { rate: 30/min, queue: 2 }

  - name: searches             # one at a time
    match: { path: /search }
    key: []
    concurrency: { limit: 1 }
";

const TRY: &str = "
curl -i http://127.0.0.1:3000/                              # RateLimit tells what is left
for i in 1 2 3 4; do curl -i http://127.0.0.1:3000/; done   # 429 and Retry-After
curl -i -H 'authorization: alice' http://127.0.0.1:3000/    # who has limits of her own

# The second is held for two seconds:
for i in 1 2; do curl -s -H 'authorization: bob' http://127.0.0.1:3000/report & done; wait

# One passes, one is denied while the other is at work:
for i in 1 2; do curl -s -H 'authorization: carol' http://127.0.0.1:3000/search & done; wait
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new(Policy::read(Path::new("policy.yaml"), POLICY)?)?;
    let layer = TollgateLayer::new(engine)
        .peer(|request| request.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()))
        // A real application takes the user from where its own authentication has put him, not from what anybody can write.
        .attribute("user", |request| request.headers.get("authorization")?.to_str().ok().map(Into::into));

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/report", get(|| async { "a report\n" }))
        .route("/search", get(search))
        .layer(layer);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("Try:\n{TRY}");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn search() -> &'static str {
    tokio::time::sleep(Duration::from_secs(1)).await;
    "found\n"
}
