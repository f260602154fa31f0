//! A proxy that can fall silent on the connections there are, while new ones work: the testkit's is silent on all.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// A proxy before a server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    silenced: watch::Sender<u32>,
}

impl Proxy {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (silenced, listening) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut silence = listening.clone();
                silence.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = silence.changed() => std::future::pending().await, // both stay open
                    }
                });
            }
        });
        Self { port, silenced }
    }

    /// Lets nothing through any more on the connections there are. New ones work.
    pub(crate) fn silence(&self) {
        self.silenced.send_modify(|times| *times += 1);
    }
}
