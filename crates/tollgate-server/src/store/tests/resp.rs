use std::fmt::Write as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::listener::Speak as _;
use crate::resp::Resp;

/// A connection, what stops the server, and what ends with it.
struct Talk {
    stream: DuplexStream,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

fn talk(service: Arc<Service>) -> Talk {
    let (stream, theirs) = tokio::io::duplex(1 << 16);
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { _ = stopped.await };
    let ended = tokio::spawn(Resp::new(service).speak(theirs, connection(), activity(), stopped));
    Talk { stream, stop, ended }
}

/// All that is answered to this, by a client that then says no more.
async fn answers(service: Arc<Service>, input: &str) -> String {
    let Talk { stream, stop: _stop, .. } = talk(service);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut answers = Vec::new();
    let read = reader.read_to_end(&mut answers);
    let written = async {
        writer.write_all(input.as_bytes()).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let (read, ()) = tokio::join!(read, written);
    read.unwrap();
    String::from_utf8(answers).unwrap()
}

/// Requests of all kinds, those that are decided among those that are not.
fn mixture() -> String {
    let mut input = String::from("CL.THROTTLE first 4 1 86400\r\nPING\r\n");
    for i in 0..40 {
        let _ = write!(input, "CL.THROTTLE k{} 4 1 86400\r\nPING {i}\r\nCL.THROTTLE k 9 1 86400\r\n", i % 3);
        let _ = write!(input, "TOLLGATE.CHECK user u path /few\r\nECHO {i}\r\n");
        match i {
            7 => input.push_str("HELLO 3\r\nTOLLGATE.CHECK user v path /\r\nCLIENT SETNAME me\r\n"),
            11 => {
                input.push_str("CL.THROTTLE k\r\nCL.THROTTLE k 1 x 1\r\nCL.THROTTLE k 1 0 1\r\nNOTHING\r\n")
            }
            17 => input.push_str("DEL k k1 k9\r\nCL.THROTTLE k 9 1 86400\r\nCLIENT GETNAME\r\nDEL k9\r\n"),
            23 => input.push_str("TOLLGATE.CHECK user\r\nRESET\r\nTOLLGATE.CHECK user v path /\r\n"),
            _ => {}
        }
    }
    input + "QUIT\r\nPING\r\n"
}

#[tokio::test]
async fn a_pipeline_is_answered_as_from_memory_however_late_the_store() {
    let here = answers(in_memory(), &mixture()).await;
    let store = Slow::new(Duration::from_millis(16));
    let there = answers(shared(policy("deny"), &store), &mixture()).await;
    // In memory time goes on; what is as new in less than a day is told in seconds.
    let days = |answers: &str| answers.replace(":86399\r\n", ":86400\r\n");
    assert_eq!(days(&there), days(&here));
    assert!(there.ends_with("+OK\r\n") && there.matches("*5\r\n").count() == 82, "{there}");
    assert!((32..=64).contains(&store.most_under_way()), "{}", store.most_under_way());
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_nothing_behind() {
    let store = Slow::new(Duration::from_secs(60));
    let Talk { mut stream, ended, stop: _stop } = talk(shared(policy("deny"), &store));
    stream.write_all("CL.THROTTLE k 4 1 60\r\n".repeat(500).as_bytes()).await.unwrap();
    eventually("as much as may be is asked", || store.under_way() == 64).await;
    drop(stream);
    ended.abort(); // as the system does for a client that is gone without a word
    eventually("nothing is asked any more", || store.under_way() == 0).await;
}

#[tokio::test]
async fn what_has_to_wait_is_bounded() {
    let store = Slow::new(Duration::from_secs(60));
    let Talk { mut stream, ended: _ended, stop: _stop } = talk(shared(policy("deny"), &store));
    let echo = format!("ECHO {}\r\n", "x".repeat(16 << 10));
    stream.write_all(b"CL.THROTTLE k 4 1 60\r\n").await.unwrap();
    let mut written = 0;
    let write = async {
        loop {
            stream.write_all(echo.as_bytes()).await.unwrap();
            written += echo.len();
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(300), write).await.is_err());
    // What it says later, what is read and not answered, and what lies in the socket.
    assert!((256 << 10..512 << 10).contains(&written), "{written}");
}

#[tokio::test]
async fn what_was_asked_is_answered_before_the_end() {
    let store = Slow::new(TAKES);
    let Talk { mut stream, stop, ended } = talk(shared(policy("deny"), &store));
    stream.write_all("CL.THROTTLE k 4 1 60\r\nPING\r\n".repeat(20).as_bytes()).await.unwrap();
    eventually("it is asked", || store.under_way() == 20).await;
    stop.send(()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    assert_eq!((answers.matches("*5\r\n").count(), answers.matches("+PONG\r\n").count()), (20, 20));
    drop(stream);
    ended.await.unwrap();
}

#[tokio::test]
async fn without_the_store_commands_are_answered_too() {
    let store = Slow::new(Duration::ZERO);
    let service = shared(policy("deny"), &store);
    store.go();
    // A look is never limited there, and told that nothing remains.
    let look = answers(Arc::clone(&service), "CL.THROTTLE k 4 1 60 0\r\n").await;
    assert_eq!(look, "*5\r\n:0\r\n:5\r\n:0\r\n:-1\r\n:0\r\n");
    let input = "CL.THROTTLE k 4 1 60\r\nDEL k\r\nTOLLGATE.CHECK user u path /few\r\nPING\r\n";
    let answers = answers(service, input).await;
    // The wait is the time until the store is tried again.
    assert!(answers.starts_with("*5\r\n:1\r\n:5\r\n:0\r\n:1\r\n"), "{answers}");
    assert!(answers.contains("-ERR the store gave no answer: it is gone\r\n"), "{answers}");
    assert!(answers.contains("unavailable") && answers.ends_with("+PONG\r\n"), "{answers}");
}
