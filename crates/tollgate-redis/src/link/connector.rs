//! Makes connections: TCP, TLS, AUTH.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, RedisError, Value};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use super::error::text_of;
use super::password::Secret;
use super::task::Task;
use super::tls::TlsClient;

/// How long it may take until a connection is made.
const CONNECT: Duration = Duration::from_secs(1);

/// How long a server has to take the password, if calls are not given longer: one that is silent is left for another attempt.
const GREETING: Duration = Duration::from_millis(250);

/// As many commands wait for the connection to take them; those that come then wait as well, and are not sent when their
/// time is over.
const QUEUE: usize = 1024;

/// After how long the other side of a quiet connection is asked whether it is still there, how often, and how long what
/// was sent may stay unacknowledged: one that is gone without a word is noticed before it is needed.
const QUIET: Duration = Duration::from_secs(5);
const QUIET_ASKS: u32 = 3;
const STALLED: Duration = Duration::from_secs(10);

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: Arc<str>, // without brackets
    pub(super) port: u16,
}

impl Address {
    /// Reads `host:port` as servers write it: without brackets, and without a host where they mean their own.
    pub(super) fn read(text: &str, own_host: &Arc<str>) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = if host.is_empty() { Arc::clone(own_host) } else { host.into() };
        Some(Self { host, port: port.parse().ok().filter(|&port| port != 0)? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// How connections are made. It has the password: it is not `Debug`.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) greeting: Greeting,
    pub(super) tls: Option<TlsClient>,
    pub(super) deadline: Duration, // of a call
}

/// A connection, and the task that reads and writes on it: it ends when either is dropped or the connection breaks.
pub(super) struct Connection {
    pub(super) redis: MultiplexedConnection,
    pub(super) driver: Task,
}

impl Connector {
    /// Connects and gives the password, in bounded time.
    pub(super) async fn connect(&self, address: &Address) -> Result<Connection, String> {
        self.open(address).await.map_err(|reason| format!("{address}: {reason}"))
    }

    async fn open(&self, address: &Address) -> Result<Connection, String> {
        // First: how long its file takes is not held against the server.
        let words = self.greeting.words().await;
        let stream = TcpStream::connect((&*address.host, address.port));
        let stream = in_time(CONNECT, stream, "it did not take a connection").await?;
        let stream = stream.map_err(|error| error.to_string())?;
        prepare(&stream).map_err(|error| error.to_string())?;
        let (patience, silent) = (self.deadline.max(GREETING), "it did not answer");
        match &self.tls {
            None => in_time(patience, self.greet(stream, &words), silent).await?,
            // Ours rather than that of the `redis` crate, which reads the system's certificates anew for each
            // connection, takes the process' default provider, and would have to be built with TLS of its own.
            Some(tls) => {
                let name =
                    ServerName::try_from(String::from(&*address.host)).map_err(|error| error.to_string())?;
                // A server without TLS waits for the end of what it takes for a command.
                let stream = in_time(
                    CONNECT,
                    tls.connector.connect(name, stream),
                    "it did not answer the TLS handshake (without TLS its URL begins with `redis://`)",
                );
                let stream = stream.await?.map_err(|error| tls.refused(&error))?;
                in_time(patience, self.greet(stream, &words), silent).await?
            }
        }
    }

    async fn greet<S>(&self, stream: S, words: &Pipeline) -> Result<Connection, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // The deadline of a call is kept by who makes it.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
        // What the client library is called is not told: it is a command more that users may not be allowed. Password and
        // database are told below, since the library keeps to itself what servers answer to them.
        let silent = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (mut redis, driver) = MultiplexedConnection::new_with_config(&silent, stream, config)
            .await
            .map_err(|error| error.to_string())?;
        let driver = Task::spawn(driver);
        let answers = redis.send_packed_commands(words, 0, words.len()).await;
        self.greeting.heard(&answers.map_err(|error| self.broke(&error))?)?;
        Ok(Connection { redis, driver })
    }

    /// Why a connection was closed before the first answer.
    fn broke(&self, error: &RedisError) -> String {
        let hint = match &self.tls {
            None => "; does the server speak TLS? then its URL begins with `rediss://`",
            Some(tls) => tls.hint(),
        };
        // Its words for the bare end of a connection, a broken pipe, tell nobody anything.
        let why = if error.is_connection_dropped() { String::new() } else { format!(": {error}") };
        format!("the server closed the connection{why}{hint}")
    }
}

/// What a server is told first.
#[derive(Clone)]
pub(super) struct Greeting {
    pub(super) username: Option<String>,
    pub(super) password: Option<Arc<Secret>>,
    pub(super) database: u16,
}

impl Greeting {
    /// The password, or a PING: servers say only when asked that they want one, and break off when strangers are long.
    async fn words(&self) -> Pipeline {
        let mut words = Pipeline::new();
        match &self.password {
            Some(password) => words.cmd("AUTH").arg(&self.username).arg(password.now().await),
            None => words.cmd("PING"),
        };
        if self.database != 0 {
            words.cmd("SELECT").arg(self.database);
        }
        words
    }

    fn heard(&self, answers: &[Value]) -> Result<(), String> {
        match (&self.password, answers.first()) {
            (Some(_), Some(Value::ServerError(error))) => {
                let user = self.username.as_deref().unwrap_or("default");
                // A server that has no AUTH repeats what it was told: only answers that are known not to are passed on.
                let text = match error.code() {
                    "WRONGPASS" | "NOAUTH" | "NOPERM" | "LOADING" | "BUSY" => text_of(error),
                    code => format!("AUTH is answered `{code}`"),
                };
                return Err(format!("the server refuses the password of user `{user}`: {text}"));
            }
            (None, Some(Value::ServerError(error))) if error.code() == "NOAUTH" => {
                return Err(format!(
                    "the server asks for a password, and none is given: {} \
                     `password_file` names the file with it, for Sentinels that under `sentinel`",
                    text_of(error)
                ));
            }
            // Too many clients, or protected mode. What else it may be is no matter for those who ask something else.
            (None, Some(Value::ServerError(error))) if matches!(error.code(), "ERR" | "DENIED") => {
                return Err(text_of(error));
            }
            _ => {}
        }
        match answers.get(1) {
            Some(Value::ServerError(error)) => {
                Err(format!("SELECT {} is answered `{}`", self.database, text_of(error)))
            }
            _ => Ok(()),
        }
    }
}

async fn in_time<T>(within: Duration, work: impl Future<Output = T>, what: &str) -> Result<T, String> {
    timeout(within, work).await.map_err(|_| format!("{what} within {within:?}"))
}

/// Asks all of it in one go, in bounded time.
pub(super) async fn ask_all(
    connection: &mut MultiplexedConnection,
    questions: &Pipeline,
    within: Duration,
) -> Result<Vec<Value>, String> {
    let count = questions.len();
    match timeout(within, connection.send_packed_commands(questions, 0, count)).await {
        Err(_) => Err(format!("it did not answer within {within:?}")),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(answers)) if answers.len() != count => {
            Err("it did not answer all that it was asked".to_owned())
        }
        Ok(Ok(answers)) => Ok(answers),
    }
}

/// The text of a value that is one.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(STALLED))?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(QUIET).with_interval(QUIET).with_retries(QUIET_ASKS),
    )
}
