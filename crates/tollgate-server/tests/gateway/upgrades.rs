//! WebSocket, by a client and a server that nobody here wrote.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use super::running::Gateway;
use crate::service::eventually;

/// A server that answers every message with itself.
async fn echo(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() || message.is_binary() {
                    socket.send(message).await.unwrap();
                }
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_passes_through_and_takes_no_slot() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(echo(listener));
    let limits = "limits: [{ name: open, key: [], concurrency: { limit: 3 } }]";
    let gateway = Gateway::before(&upstream, "concurrency: { max: 1 }", limits);
    let url = format!("ws://{}/chat", gateway.address);
    let mut sockets = Vec::new();
    for number in 0..3 {
        let (mut socket, response) = tokio_tungstenite::connect_async(&url).await.unwrap();
        assert_eq!(response.headers()["ratelimit"], format!("\"open\";r={}", 2 - number));
        for message in ["hello", "world"] {
            socket.send(Message::text(message)).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(message));
        }
        let large = vec![7; 3_000_000];
        socket.send(Message::binary(large.clone())).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary(large));
        sockets.push(socket);
    }
    // A place in a concurrency limit is held for as long as it is open.
    let refused = tokio_tungstenite::connect_async(&url).await.unwrap_err();
    assert!(refused.to_string().contains("429"), "{refused}");
    sockets.pop().unwrap().close(None).await.unwrap();
    tokio::task::spawn_blocking(move || {
        let mut seen = gateway.service.connect();
        let decided = "tollgate_gateway_requests_total{outcome=\"denied\"}";
        assert_eq!(seen.metric(decided), Some(1.0));
        eventually("its place is free", || {
            let request = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                           Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
            gateway.connect().send_raw(request.as_bytes()).is_ok_and(|answer| answer.status == 101)
        });
    })
    .await
    .unwrap();
}
