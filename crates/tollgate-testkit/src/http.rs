//! The smallest HTTP client that tests can do with: it also sends what a better one would refuse to.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection that is kept for several requests.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Such as 200.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Http {
    /// Connects.
    ///
    /// # Panics
    ///
    /// When nobody listens.
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}")))
    }

    /// Speaks over a connection that is there.
    ///
    /// # Panics
    ///
    /// When it is no longer.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        Self { address: stream.peer_addr().expect("it is connected"), stream: BufReader::new(stream) }
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn send(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let answer = self.try_send(method, target, headers, body.as_bytes());
        answer.unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Sends a request, of whatever bytes, and waits for the answer.
    ///
    /// # Errors
    ///
    /// When there is none, or none that is HTTP.
    pub fn try_send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut request = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.address).into_bytes();
        for (name, value) in headers {
            request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        request.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        request.extend_from_slice(body);
        self.stream.get_mut().write_all(&request)?;
        self.answer(method == "HEAD")
    }

    /// Sends bytes as they are, and waits for an answer.
    ///
    /// # Errors
    ///
    /// When there is none, or none that is HTTP.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<Answer> {
        self.stream.get_mut().write_all(bytes)?;
        self.answer(false)
    }

    fn answer(&mut self, is_head: bool) -> io::Result<Answer> {
        let no_http = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("no HTTP: {what}"));
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let status =
            line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| no_http(&line))?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let value =
            |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let has_none = is_head || status < 200 || status == 204 || status == 304;
        let mut body = Vec::new();
        match (value("content-length"), value("transfer-encoding")) {
            _ if has_none => {}
            (Some(length), _) => {
                body.resize(length.parse().map_err(|_| no_http(length))?, 0);
                self.stream.read_exact(&mut body)?;
            }
            (None, Some(_chunked)) => loop {
                line.clear();
                self.stream.read_line(&mut line)?;
                let size = usize::from_str_radix(line.trim_end(), 16).map_err(|_| no_http(&line))?;
                let from = body.len();
                body.resize(from + size + 2, 0);
                self.stream.read_exact(&mut body[from..])?;
                body.truncate(from + size);
                if size == 0 {
                    break;
                }
            },
            (None, None) => _ = self.stream.read_to_end(&mut body)?,
        }
        Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }
}
