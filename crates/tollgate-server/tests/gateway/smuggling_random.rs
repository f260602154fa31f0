//! The invariant behind all defences against request smuggling: the application sees each request that the gateway forwards once, and no
//! other request. Random messages try to break it, before a strict application and before nginx.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_testkit::{Process, is_long, program};

use super::random_messages;
use super::running::Gateway;
use super::strict_application::StrictApplication;
use crate::http2_frames::wire::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, Wire, block, frame,
};
use crate::service::{Directory, eventually};
use crate::site::free_addresses;

/// The number of connections that send messages at once. Most of the time they wait.
const CLIENTS: u64 = 12;

/// How long the gateway may be silent before the client takes it that the gateway waits for more of the message. On a machine that
/// stalls, the client gives up too early: then the checks allow one request that the gateway has not answered.
const SILENCE: Duration = Duration::from_millis(100);

/// One token per request, so that the metrics count what was charged.
const POLICY: &str = "limits: [{ name: all, key: [], token_bucket: { rate: 1/hour, burst: 1000000 } }]";

/// The number of messages per test.
fn messages() -> u64 {
    if is_long() { 20_000 } else { 1500 }
}

/// What the gateway answered on one connection.
#[derive(Debug, Default)]
struct Conversation {
    answers: Vec<(u16, String)>, // status and body
    /// Whether the client gave up waiting, or the connection was reset: the last request may have been forwarded without an answer.
    is_cut: bool,
}

impl Conversation {
    /// The bodies of the answers of the application.
    fn of_application(&self) -> Vec<&str> {
        self.answers.iter().filter(|(status, _)| *status == 200).map(|(_, body)| body.as_str()).collect()
    }

    /// The most requests that may have arrived: those that were answered by the application, and those whose answer the client did
    /// not get. One of them is a stream of HTTP/2 that is reset because its body is longer than announced. The gateway does not wait for
    /// the end of a body before it forwards the beginning.
    fn most_forwarded(&self) -> usize {
        let resets = self.answers.iter().filter(|(status, _)| *status == 0).count();
        self.of_application().len() + resets + usize::from(self.is_cut)
    }
}

/// Sends the message with this number to an address.
type Converse = fn(SocketAddr, u64) -> Conversation;

/// The request after a message, which must be answered with its own target or not at all.
fn marker(id: u64) -> String {
    format!("/marker/{id}")
}

/// Sends a message and the marker over one connection of HTTP/1.1.
fn converse(address: SocketAddr, id: u64) -> Conversation {
    let message = random_messages::http1(id);
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let request = format!("GET {} HTTP/1.1\r\nHost: m\r\n\r\n", marker(id));
    let _ = (&stream).write_all(&[&message, request.as_bytes()].concat()); // the gateway may have closed it
    let mut conversation = Conversation::default();
    let mut reader = Patient { stream: &stream, is_cut: false };
    let mut buffered = BufReader::new(&mut reader);
    let mut is_reset = false;
    loop {
        match answer(&mut buffered) {
            Ok(Some((status, body))) => {
                let is_marker = status == 200 && body.contains(&marker(id));
                conversation.answers.push((status, body));
                if is_marker {
                    break;
                }
            }
            Ok(None) => break,
            Err(_) => {
                is_reset = true; // and an answer on its way is lost
                break;
            }
        }
    }
    conversation.is_cut = reader.is_cut || is_reset;
    conversation
}

/// Reads until nothing comes for a while, then ends the client's side and reads what the gateway still sends.
struct Patient<'s> {
    stream: &'s TcpStream,
    is_cut: bool,
}

impl io::Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(into) {
            Err(error)
                if !self.is_cut
                    && matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                self.is_cut = true;
                self.stream.shutdown(Shutdown::Write)?;
                self.stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                self.stream.read(into)
            }
            read => read,
        }
    }
}

/// The next answer with a final status. None at the end of the connection.
fn answer(reader: &mut impl io::BufRead) -> io::Result<Option<(u16, String)>> {
    loop {
        let (mut line, mut length, mut is_chunked) = (String::new(), None, false);
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("not an answer: {line:?}"));
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            length = length.or(line.strip_prefix("content-length: ").map(|length| length.parse().unwrap()));
            is_chunked |= line == "transfer-encoding: chunked";
        }
        if status < 200 {
            continue;
        }
        let mut body = Vec::new();
        match length {
            Some(length) => {
                body.resize(length, 0);
                reader.read_exact(&mut body)?;
            }
            None => assert!(
                !is_chunked && reader.read_to_end(&mut body).is_ok(),
                "an application that announces lengths"
            ),
        }
        return Ok(Some((status, String::from_utf8_lossy(&body).into_owned())));
    }
}

/// Sends a message over HTTP/2, waits for what comes of it, then sends the marker.
fn converse_http2(address: SocketAddr, id: u64) -> Conversation {
    let (fields, body, trailers) = random_messages::http2(id);
    let mut wire = Wire::open(address, &[]);
    let block_of_head = block(&fields);
    let (first, rest) = block_of_head.split_at(block_of_head.len() / 2);
    let is_over = body.is_empty() && trailers.is_none();
    wire.send(&frame(HEADERS, if is_over { END_STREAM } else { 0 }, 1, first));
    wire.send(&frame(CONTINUATION, END_HEADERS, 1, rest));
    if !body.is_empty() {
        wire.send(&frame(DATA, 0, 1, &body[..1]));
        wire.send(&frame(DATA, if trailers.is_none() { END_STREAM } else { 0 }, 1, &body[1..]));
    }
    if let Some(trailers) = trailers {
        wire.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&trailers)));
    }
    let mut conversation = Conversation::default();
    let marker = marker(id);
    let marker = [(":method", "GET"), (":scheme", "http"), (":path", &marker), (":authority", "m")];
    if receive(&mut wire, 1, &mut conversation) {
        wire.send(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &block(&marker)));
        receive(&mut wire, 3, &mut conversation);
    }
    conversation
}

/// Receives the answer on a stream. False if the connection has ended.
fn receive(wire: &mut Wire, stream: u32, conversation: &mut Conversation) -> bool {
    let (mut status, mut body) = (None, Vec::new());
    while let Some(frame) = wire.next() {
        match frame.kind {
            GOAWAY => break,
            HEADERS if frame.stream == stream => status = status.or(frame.status()),
            DATA if frame.stream == stream => body.extend_from_slice(&frame.payload),
            _ => {}
        }
        if frame.ends(stream) {
            // A stream that is reset has no answer, or one that is not whole.
            let status = status.filter(|_| frame.kind != RST_STREAM).unwrap_or(0);
            conversation.answers.push((status, String::from_utf8_lossy(&body).into_owned()));
            return true;
        }
    }
    conversation.answers.push((0, String::new()));
    false
}

/// Has all messages sent, several at once.
fn converse_all(address: SocketAddr, converse: Converse) -> HashMap<u64, Conversation> {
    let (next, all) = (AtomicU64::new(0), Mutex::new(HashMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= messages() {
                        return;
                    }
                    let conversation = converse(address, id);
                    all.lock().insert(id, conversation);
                }
            });
        }
    });
    all.into_inner()
}

/// The message to which a request belongs: the first number in its target. A message may have lost the slash before it.
fn id_of(summary: &str) -> u64 {
    let target = summary.split(' ').find(|part| part.starts_with('/')).unwrap_or_default();
    let number = target.trim_start_matches(|character: char| !character.is_ascii_digit());
    let digits = number.split(|character: char| !character.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("no message has this target: {summary:?}"))
}

/// Requests by the message to which they belong, in the order in which they arrived.
fn by_message(requests: impl Iterator<Item = String>) -> HashMap<u64, Vec<String>> {
    let mut by_id: HashMap<u64, Vec<String>> = HashMap::new();
    requests.for_each(|request| by_id.entry(id_of(&request)).or_default().push(request));
    by_id
}

/// Waits until the gateway has no request under way. Then its counts of requests: forwarded, left by their clients, charged.
fn counts(gateway: &Gateway) -> [f64; 3] {
    let mut client = gateway.service.connect();
    eventually("no request is under way", || {
        let metrics = client.get("/metrics").body;
        let in_flight = metrics.lines().filter(|line| line.starts_with("tollgate_upstream_inflight{"));
        in_flight.into_iter().all(|line| line.ends_with(" 0"))
    });
    [
        "tollgate_gateway_requests_total{outcome=\"forwarded\"}",
        "tollgate_gateway_requests_total{outcome=\"gone\"}",
        "tollgate_decisions_total{limit=\"all\",outcome=\"allow\",protocol=\"gateway\"}",
    ]
    .map(|name| client.metric(name).unwrap_or(0.0))
}

/// Compares what the strict application got with what the clients were answered and with what the gateway counted.
fn assert_each_forwarded_request_arrives_once(
    application: &StrictApplication,
    gateway: &Gateway,
    conversations: &HashMap<u64, Conversation>,
    may_follow: bool, // whether a hidden request may come out of its message, as one that follows
    message: impl Fn(u64) -> String,
) {
    let [forwarded, gone, charged] = counts(gateway);
    assert_eq!(application.faults(), [""; 0], "all that arrives is plain HTTP/1.1");
    let requests = application.requests();
    let arrived = requests.len() as f64;
    let by_message =
        by_message(requests.into_iter().map(|request| format!("{} {}", request.number, request.summary)));
    let mut faults = String::new();
    for (id, conversation) in conversations {
        let arrived: Vec<&str> = by_message.get(id).into_iter().flatten().map(String::as_str).collect();
        // The number in each answer shows that it belongs to this request.
        let mut rest = arrived.iter();
        let have_arrived =
            conversation.of_application().iter().all(|answered| rest.any(|arrived| arrived == answered));
        let is_hidden = !may_follow && arrived.iter().any(|arrived| arrived.contains("/hidden/"));
        // After a message that the gateway refuses, nobody knows where the next one begins.
        let refusal = conversation.answers.iter().position(|(status, _)| *status != 200);
        let goes_on = may_follow && refusal.is_some_and(|at| at + 1 < conversation.answers.len());
        if !have_arrived || is_hidden || goes_on || arrived.len() > conversation.most_forwarded() {
            let _ = writeln!(faults, "{id}: {}\narrived: {arrived:?}, {conversation:?}", message(*id));
        }
    }
    assert!(faults.is_empty(), "{faults}");
    assert!(
        forwarded <= arrived && arrived <= forwarded + gone && arrived <= charged,
        "{arrived} requests arrived, {forwarded} were forwarded, {gone} were left, {charged} were charged"
    );
    // The messages are of both kinds.
    let has_marker = |conversation: &&Conversation| {
        conversation.of_application().last().is_some_and(|body| body.contains("/marker/"))
    };
    let answered = conversations.values().filter(has_marker).count() as u64;
    let is_refused = |conversation: &&Conversation| conversation.of_application().is_empty();
    let refused = conversations.values().filter(is_refused).count() as u64;
    eprintln!(
        "{arrived} requests arrived, {answered} markers were answered, {refused} messages refused of {}",
        messages()
    );
    assert!(
        answered > messages() / 20 && refused > messages() / 20,
        "{answered} answered, {refused} refused"
    );
}

#[test]
fn the_application_sees_each_forwarded_request_once_and_no_other() {
    let application = StrictApplication::start();
    let gateway = Gateway::before(&format!("http://{}", application.address), "", POLICY);
    let conversations = converse_all(gateway.address, converse);
    let message = |id| String::from_utf8_lossy(&random_messages::http1(id)).escape_debug().to_string();
    assert_each_forwarded_request_arrives_once(&application, &gateway, &conversations, true, message);
}

#[test]
fn the_application_sees_each_request_of_http2_once_and_no_other() {
    let application = StrictApplication::start();
    let gateway = Gateway::before(&format!("http://{}", application.address), "", POLICY);
    let conversations = converse_all(gateway.address, converse_http2);
    let message = |id| {
        let (fields, body, trailers) = random_messages::http2(id);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = fields.iter().chain(trailers.iter().flatten());
        let fields: Vec<_> = fields.map(|(name, value)| (text(name), text(value))).collect();
        format!("{fields:?} {:?}", text(&body))
    };
    assert_each_forwarded_request_arrives_once(&application, &gateway, &conversations, false, message);
}

/// nginx, which nobody here wrote, logs the requests that it parsed.
#[test]
fn nginx_sees_no_request_that_the_gateway_did_not_forward() {
    let Some(nginx) = program("nginx") else { return };
    let [address] = free_addresses();
    let directory = Directory::new();
    directory.write(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid pid; error_log stderr;
            events {{}}
            http {{
              log_format seen escape=none '$status $request';
              access_log log seen;
              client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;
              keepalive_requests 1000000;
              server {{
                listen {address};
                location / {{ return 200 '$request_method $request_uri'; }}
              }}
            }}"
        ),
    );
    let mut command = std::process::Command::new(nginx);
    let _nginx =
        Process::start(command.args(["-p", ".", "-c", "nginx.conf"]).current_dir(directory.path(".")));
    eventually("nginx listens", || TcpStream::connect(address).is_ok());
    let gateway = Gateway::before(&format!("http://{address}"), "", POLICY);
    let clients: [(Converse, bool); 2] = [(converse, true), (converse_http2, false)];
    for (converse, may_follow) in clients {
        let _ = std::fs::write(directory.path("log"), "");
        let conversations = converse_all(gateway.address, converse);
        let _ = counts(&gateway);
        let answered: usize =
            conversations.values().map(|conversation| conversation.of_application().len()).sum();
        let log = || String::from_utf8_lossy(&std::fs::read(directory.path("log")).unwrap()).into_owned();
        eventually("the log is written", || log().lines().count() >= answered);
        let by_message = by_message(log().lines().map(str::to_owned));
        for (id, conversation) in &conversations {
            let arrived = by_message.get(id).map_or(0, Vec::len);
            // nginx answers before it has read a body. Then it has seen a request that the gateway refuses because of its body.
            let most = conversation.answers.len() + usize::from(conversation.is_cut);
            assert!(arrived <= most, "{id}: {:?}, {conversation:?}", by_message.get(id));
            let is_hidden =
                by_message.get(id).into_iter().flatten().any(|request| request.contains("/hidden/"));
            assert!(may_follow || !is_hidden, "{id}: {:?}, {conversation:?}", by_message.get(id));
            for body in conversation.of_application() {
                assert_eq!(id_of(body), *id, "{conversation:?}");
            }
        }
        assert!(answered > 0);
    }
}
