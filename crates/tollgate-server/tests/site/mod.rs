//! A site as the recipes of `examples/` build it: a real proxy before an application, and the limiter that it asks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use socket2::{Domain, Socket, Type};
use tollgate_testkit::{Http, Process, free_port, http, program};

use crate::service::{Directory, TOLLGATE, eventually, repository};

/// How a proxy is told to ask the limiter.
pub(crate) struct Recipe {
    /// The proxy's program, and the directory of its recipe.
    pub(crate) name: &'static str,
    files: &'static [&'static str],
    /// Its command line, in a directory that has its files.
    arguments: &'static [&'static str],
    /// What is changed to refuse while the limiter is down, and what clients then see.
    to_close: (&'static str, &'static str),
    pub(crate) closed: u16,
    /// Whether the client is told the counters of a request that passes. If not, the application is.
    pub(crate) tells_client: bool,
}

/// All that we have.
pub(crate) const RECIPES: [Recipe; 4] = [
    Recipe {
        name: "nginx",
        files: &["tollgate.conf"],
        arguments: &["-p", ".", "-c", "nginx.conf"],
        to_close: ("error_page 502 504 = @open; # opens", ""),
        closed: 500,
        tells_client: true,
    },
    Recipe {
        name: "caddy",
        files: &["Caddyfile"],
        arguments: &["run", "--config", "Caddyfile"],
        to_close: ("reverse_proxy @limiter 127.0.0.1:9000 # opens", ""),
        closed: 502,
        tells_client: true,
    },
    Recipe {
        name: "haproxy",
        files: &["haproxy.cfg", "tollgate.lua"],
        arguments: &["-db", "-f", "haproxy.cfg"],
        to_close: ("# http-request deny deny_status", "http-request deny deny_status"),
        closed: 503,
        tells_client: true,
    },
    Recipe {
        name: "traefik",
        files: &["traefik.yml", "dynamic.yml"],
        arguments: &["--configFile=traefik.yml"],
        to_close: ("        address: http://127.0.0.1:8001/v1", "        address: http://127.0.0.1:8080/v1"),
        closed: 500,
        tells_client: false,
    },
];

/// nginx's recipe is a part of a configuration. The rest of it keeps to its directory, and to one process.
const AROUND_NGINX: &str = "daemon off; master_process off; pid pid; error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;
  include tollgate.conf;
}";

/// Sites by all recipes whose programs are there, as they stand.
pub(crate) fn sites() -> impl Iterator<Item = Site> {
    RECIPES.into_iter().filter_map(|recipe| Site::start(recipe, false))
}

/// Likewise, with what the recipes say to refuse while the limiter is down.
pub(crate) fn closed_sites() -> impl Iterator<Item = Site> {
    RECIPES.into_iter().filter_map(|recipe| Site::start(recipe, true))
}

/// A site that runs until it is dropped.
pub(crate) struct Site {
    pub(crate) recipe: Recipe,
    address: SocketAddr,
    limiter_address: SocketAddr,
    limiter: Option<Process>,
    _proxy: Process,
    _directory: Directory,
}

impl Site {
    fn start(recipe: Recipe, is_closed: bool) -> Option<Self> {
        let program = program(recipe.name)?;
        let directory = Directory::new();
        let [site, limiter_address, itself] = free_addresses();
        let ports = [
            ("127.0.0.1:8000", site),
            ("127.0.0.1:8001", itself),
            ("127.0.0.1:8080", limiter_address),
            ("127.0.0.1:9000", application()),
        ];
        let (mut is_changed, mut used) = (!is_closed, [false; 4]);
        for file in recipe.files {
            let path = repository("examples").join(recipe.name).join(file);
            let mut text = std::fs::read_to_string(path).unwrap();
            let (open, closed) = recipe.to_close;
            if is_closed && text.contains(open) {
                text = text.replacen(open, closed, 1);
                is_changed = true;
            }
            for (i, (written, used_here)) in ports.iter().enumerate() {
                used[i] |= text.contains(written);
                text = text.replace(written, &used_here.to_string());
            }
            directory.write(file, &text);
        }
        assert!(is_changed, "{}: nothing there to close it by", recipe.name);
        assert!(used[0] && used[2] && used[3], "{}: other addresses than expected", recipe.name);
        if recipe.name == "nginx" {
            directory.write("nginx.conf", AROUND_NGINX);
        }
        // The limiter before the proxy: one that looks for it first and finds nobody lets everything pass for a while.
        let limiter = start_limiter(limiter_address);
        let proxy = Process::start(
            Command::new(program)
                .args(recipe.arguments)
                .current_dir(directory.path("."))
                // Caddy keeps things at home.
                .env("HOME", directory.path("."))
                .env("XDG_DATA_HOME", directory.path("."))
                .env("XDG_CONFIG_HOME", directory.path(".")),
        );
        let site = Self {
            recipe,
            address: site,
            limiter_address,
            limiter: Some(limiter),
            _proxy: proxy,
            _directory: directory,
        };
        site.eventually("the first request is counted", |site| {
            site.try_get("/").is_some_and(|answer| {
                let is_counted = answer.header("ratelimit").is_some() || answer.body.contains("\nratelimit:");
                answer.status == 200 && is_counted
            })
        });
        Some(site)
    }

    /// Starts the limiter again.
    pub(crate) fn start_limiter(&mut self) {
        self.limiter = Some(start_limiter(self.limiter_address));
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill_limiter(&mut self) {
        self.limiter = None;
    }

    /// A client, by the address that it connects from.
    pub(crate) fn client(&self, from: [u8; 4]) -> Http {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        Http::over(socket.into())
    }

    /// What a request without anything special is answered.
    pub(crate) fn get(&self, target: &str) -> http::Answer {
        self.client([127, 0, 0, 1]).send("GET", target, &[], "")
    }

    /// Likewise of one that signs up, of which the policy allows five an hour.
    pub(crate) fn sign_up(&self) -> http::Answer {
        self.client([127, 0, 0, 1]).send("POST", "/sign-up", &[], "me")
    }

    /// Waits until something is so of the site.
    pub(crate) fn eventually(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        eventually(&format!("{}: {what}", self.recipe.name), || is_so(self));
    }

    fn try_get(&self, target: &str) -> Option<http::Answer> {
        let stream = TcpStream::connect(self.address).ok()?;
        Http::over(stream).try_send("GET", target, &[], b"").ok()
    }
}

/// Starts a limiter by the policy of the recipes, and waits until it listens.
fn start_limiter(address: SocketAddr) -> Process {
    let mut command = Command::new(TOLLGATE);
    command.args(["serve", "--config"]).arg(repository("examples/proxies.yaml"));
    let mut limiter = Process::start(command.args(["--listen", &address.to_string()]));
    limiter.line_with("listens on");
    limiter
}

/// Addresses of the loopback on which nobody listens, and which no connection of anybody's takes before a server does.
pub(crate) fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    std::array::from_fn(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())))
}

/// An application that answers what it was sent: method, target and length of the body in the first line, then the
/// headers. `/forbidden` it answers with 403. It goes with the tests.
pub(crate) fn application() -> SocketAddr {
    let listener = TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || stream.and_then(answer));
        }
    });
    address
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        head.push(line);
    }
    let Some(request) = head.first() else { return Ok(()) };
    stream.read_exact(&mut vec![0; length])?;
    let target = request.rsplit_once(' ').map_or("", |(target, _version)| target);
    let status = if target.ends_with(" /forbidden") { "403 Forbidden" } else { "200 OK" };
    let body = format!("{target} {length}\n{}", head[1..].join("\n").to_ascii_lowercase());
    write!(
        stream.get_mut(),
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
