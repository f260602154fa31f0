//! Ten thousand idle connections.

use std::process::Command;

use crate::service::resp::RespService;
use crate::service::{Directory, TOLLGATE};
use tollgate_testkit::{Process, program};

/// A process of its own, lest it and the server share the file descriptors of one.
const CLIENT: &str = r#"
import resource, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, max(count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
sockets = []
for i in range(count):
    s = socket.create_connection(("127.0.0.1", port))
    # Each has had a large request answered once, so that buffers would be left behind if any were kept.
    s.sendall(b"*2\r\n$4\r\nECHO\r\n$20000\r\n" + b"x" * 10000)
    sockets.append(s)
    if i >= 100:
        finish = sockets[i - 100]
        finish.sendall(b"x" * 10000 + b"\r\n")
for s in sockets[-100:]:
    s.sendall(b"x" * 10000 + b"\r\n")
for s in sockets:
    left = len(b"$20000\r\n") + 20000 + 2
    while left:
        left -= len(s.recv(left))
print("all are idle", flush=True)
for s in sockets[::100]:
    s.sendall(b"PING\r\n")
    assert s.recv(7) == b"+PONG\r\n"
print("and all answer", flush=True)
import time
time.sleep(600)
"#;

#[test]
fn ten_thousand_idle_connections_take_32_kib_each_at_most() {
    let Some(python) = program("python3") else { return };
    let count = 10_000;
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 12000 && exec \"$@\"", "sh", TOLLGATE]);
    let service = RespService::run(Directory::new(), "limits: []", &mut command);
    service.connect().ask("PING", "+PONG\r\n");
    let before = service.memory();
    let (port, connections) = (service.address.port().to_string(), count.to_string());
    let mut client = Process::start(Command::new(python).args(["-c", CLIENT, &port, &connections]));
    client.line_with("all are idle");
    let a_connection = service.memory().saturating_sub(before) / count;
    println!("{a_connection} bytes a connection");
    assert!(a_connection <= 32 << 10, "{a_connection} bytes a connection");
    client.line_with("and all answer");
    // Who comes after them is served as before.
    service.connect().ask("CL.THROTTLE k 15 30 60", "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
}
