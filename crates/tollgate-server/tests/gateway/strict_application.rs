//! An application that takes nothing but the plainest HTTP/1.1, and reports every byte that does not belong to it. hyper and nginx are
//! more lenient: what they accept may still have a second meaning for other programs.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// More than any test sends, and less than memory.
const LARGEST_BODY: usize = 1 << 20;

/// A request that arrived as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StrictRequest {
    /// Method, target and the number of bytes in the body.
    pub(crate) summary: String,
    /// The place of the request among all that arrived.
    pub(crate) number: usize,
}

#[derive(Debug, Default)]
struct Log {
    requests: Vec<StrictRequest>,
    faults: Vec<String>,
}

/// An application that runs until the process ends. It answers each request with `number summary`.
pub(crate) struct StrictApplication {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Log>>,
}

impl StrictApplication {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::<Mutex<Log>>::default();
        let shared = Arc::clone(&log);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, log) = (stream.unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || {
                    if let Err(End::Fault(fault)) = serve(&stream, &log) {
                        log.lock().faults.push(fault);
                    }
                });
            }
        });
        Self { address, log }
    }

    pub(crate) fn requests(&self) -> Vec<StrictRequest> {
        self.log.lock().requests.clone()
    }

    /// What arrived that is not plain HTTP/1.1.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.log.lock().faults.clone()
    }
}

/// Why a connection ends.
enum End {
    /// The other side has closed it, maybe in the middle of a request.
    Closed,
    /// A byte came that has no place in plain HTTP/1.1.
    Fault(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

fn serve(stream: &TcpStream, log: &Mutex<Log>) -> Result<(), End> {
    let mut reader = BufReader::new(stream);
    loop {
        let request = line(&mut reader)?;
        let fault = |what: &str| End::Fault(format!("{what} in {request:?}"));
        let parts: Vec<&str> = request.split(' ').collect();
        let &[method, target, "HTTP/1.1"] = &parts[..] else { return Err(fault("not a request line")) };
        let is_method = !method.is_empty() && method.bytes().all(is_in_token);
        let is_target =
            target.starts_with('/') && !target.contains('#') && !target.contains(char::is_control);
        if !is_method || !is_target && (method, target) != ("OPTIONS", "*") {
            return Err(fault("no method or no path"));
        }
        let (mut hosts, mut lengths, mut encodings) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let header = line(&mut reader)?;
            if header.is_empty() {
                break;
            }
            let Some((name, value)) = header.split_once(": ") else { return Err(fault(&header)) };
            let is_value = !value.contains(|character: char| character.is_control() && character != '\t');
            if name.is_empty() || !name.bytes().all(is_in_token) || !is_value {
                return Err(fault(&header));
            }
            // Where programs make variables of headers, `_` is `-`.
            match &*name.to_ascii_lowercase().replace('_', "-") {
                "host" => hosts.push(value.to_owned()),
                "content-length" => lengths.push(value.to_owned()),
                "transfer-encoding" => encodings.push(value.to_owned()),
                _ => {}
            }
        }
        if hosts.len() != 1 {
            return Err(fault(&format!("hosts {hosts:?}")));
        }
        let length = match (&lengths[..], &encodings[..]) {
            ([], []) => 0,
            ([length], []) if is_number(length) => {
                let length = length
                    .parse()
                    .ok()
                    .filter(|length| *length <= LARGEST_BODY)
                    .ok_or_else(|| fault(length))?;
                reader.read_exact(&mut vec![0; length])?;
                length
            }
            ([], [encoding]) if encoding == "chunked" => chunks(&mut reader)?,
            _ => return Err(fault(&format!("lengths {lengths:?} and encodings {encodings:?}"))),
        };
        let summary = format!("{method} {target} {length}");
        let number = {
            let mut log = log.lock();
            let number = log.requests.len();
            log.requests.push(StrictRequest { summary: summary.clone(), number });
            number
        };
        let body = format!("{number} {summary}");
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut writer = stream;
        writer.write_all(answer.as_bytes())?;
    }
}

/// A line that ends with CR LF, without its end.
fn line(reader: &mut BufReader<&TcpStream>) -> Result<String, End> {
    let mut line = Vec::new();
    if reader.read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
        return Err(End::Closed);
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    match text.strip_suffix("\r\n") {
        Some(line) if !line.contains('\r') => Ok(line.to_owned()),
        _ => Err(End::Fault(format!("a line that does not end with CR LF alone: {text:?}"))),
    }
}

/// Reads chunks without extensions and without trailers, and counts their bytes.
fn chunks(reader: &mut BufReader<&TcpStream>) -> Result<usize, End> {
    let mut total = 0;
    loop {
        let size = line(reader)?;
        let is_size = !size.is_empty()
            && size.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let length =
            usize::from_str_radix(&size, 16).ok().filter(|length| is_size && *length <= LARGEST_BODY);
        let Some(length) = length else { return Err(End::Fault(format!("chunk size {size:?}"))) };
        let mut data = vec![0; length];
        reader.read_exact(&mut data)?;
        if !line(reader)?.is_empty() {
            return Err(End::Fault("bytes after a chunk".to_owned()));
        }
        total += length;
        if length == 0 {
            return Ok(total);
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
