//! The smallest Redis client that tests can do with. It follows no redirection and repeats nothing: what a server
//! says is what the test sees.

use std::io::{self, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Reply;

#[cfg(test)]
mod tests;

/// A connection that is kept for several commands.
#[derive(Debug)]
pub struct RedisClient {
    stream: BufReader<TcpStream>,
}

impl RedisClient {
    /// Connects. It waits at most ten seconds for that, and as long for each answer; see [`set_timeout`].
    ///
    /// [`set_timeout`]: Self::set_timeout
    ///
    /// # Errors
    ///
    /// When nobody listens.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        let mut client = Self { stream: BufReader::new(stream) };
        client.set_timeout(PATIENCE)?;
        Ok(client)
    }

    /// Sets how long an answer is waited for. After one that did not come, the connection is of no more use: it may
    /// still come, and would be taken for that to the next command.
    ///
    /// # Errors
    ///
    /// When it is zero.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(timeout))?;
        self.stream.get_ref().set_write_timeout(Some(timeout))
    }

    /// Sends a command and waits for the answer, which may be a refusal.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.try_command(arguments).unwrap_or_else(|error| panic!("{}: {error}", shown(arguments)))
    }

    /// Sends a command and waits for the answer, which may be a refusal.
    ///
    /// # Errors
    ///
    /// When there is none, or none that is RESP.
    pub fn try_command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        self.send(arguments)?;
        self.receive()
    }

    /// Sends a command. With [`receive`](Self::receive), several can be on their way at once.
    ///
    /// # Errors
    ///
    /// When the connection does not take it.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments.iter().map(AsRef::as_ref) {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    ///
    /// When there is none, or none that is RESP.
    pub fn receive(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.stream)
    }
}

fn shown<A: AsRef<[u8]>>(arguments: &[A]) -> String {
    let shown = arguments.iter().map(|argument| argument.as_ref().escape_ascii().to_string());
    shown.collect::<Vec<_>>().join(" ")
}
