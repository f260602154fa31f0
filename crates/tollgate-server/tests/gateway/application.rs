//! An application that says what a test tells it to, byte by byte: hyper would not say it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// What is done on a connection.
pub(crate) struct Talk(BufReader<TcpStream>);

/// Does the same for every request, on any number of connections, until the process ends. Where it is.
pub(crate) fn application(does: impl Fn(&str, &mut Talk) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (does, mut talk) = (does.clone(), Talk(BufReader::new(stream.unwrap())));
            std::thread::spawn(move || {
                while let Some(head) = talk.head() {
                    does(&head, &mut talk);
                }
            });
        }
    });
    address
}

impl Talk {
    /// The head of the next request.
    fn head(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            self.0.read_line(&mut head).ok().filter(|read| *read > 0)?;
        }
        Some(head)
    }

    /// So many bytes of a body.
    pub(crate) fn body(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        body
    }

    /// Whether so much could be said.
    pub(crate) fn say(&mut self, text: &str) -> bool {
        self.0.get_mut().write_all(text.as_bytes()).is_ok()
    }

    /// Waits until the other side has closed the connection.
    pub(crate) fn until_closed(&mut self) {
        while let Ok(1..) = self.0.read(&mut [0; 1024]) {}
    }
}
