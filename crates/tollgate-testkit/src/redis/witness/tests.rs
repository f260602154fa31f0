use super::*;
use crate::redis::RedisServer;

#[test]
fn a_server_that_stood_still_is_noticed() {
    const STILL: Duration = Duration::from_millis(300);
    let server = RedisServer::start();
    let witness = Witness::start(server.address());
    server.pause();
    pause(STILL);
    server.resume();
    assert!(witness.stop() >= STILL / 2);
}
