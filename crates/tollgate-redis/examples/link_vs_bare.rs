//! What the link costs: calls a second over it and over a bare connection of the `redis` crate, in turns on one server.
//!
//! ```text
//! cargo run --release --package tollgate-redis --example link_vs_bare -- [tasks] [calls a round] [rounds]
//! ```

use std::error::Error;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo as _, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate_redis::link::{Call, Link, Script, Settings, Topology};

/// A bucket by the server's clock: one read, one write.
const SOURCE: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local next = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + tonumber(ARGV[1])
if next - now > tonumber(ARGV[2]) then return {0, next - now - ARGV[2]} end
redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', math.ceil((next - now) / 1000))
return {1, 0}";

/// A server that ends with this process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u32> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let number = |place: usize, usual: u32| numbers.get(place).copied().unwrap_or(usual);
    let (tasks, calls, rounds) = (number(0, 64).max(1), number(1, 20_000), number(2, 60).max(1));

    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]).stdout(Stdio::null());
    let _server = Server(command.spawn()?);
    let url = format!("redis://127.0.0.1:{port}");

    let link = Arc::new(Link::new(Settings {
        urls: vec![url.clone()],
        topology: Topology::Single,
        username: None,
        password: None,
        tls: None,
        deadline: Duration::from_millis(500), // that of the bare connection
    })?);
    let script = Script::new(SOURCE);
    link.learn(&script);
    while !link.ready(Duration::from_secs(5)).await {
        sleep(Duration::from_millis(10)).await;
    }
    let info =
        url.as_str().into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let config = AsyncConnectionConfig::new();
    let connection = redis::Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;

    // Short rounds by turns, and the median of their ratios: what else the machine does falls on both alike.
    let each = calls / tasks;
    let (mut bare, mut linked, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (ours, theirs);
        if round % 2 == 0 {
            theirs = run_bare(&connection, &script, tasks, each).await?;
            ours = run_link(&link, &script, tasks, each).await?;
        } else {
            ours = run_link(&link, &script, tasks, each).await?;
            theirs = run_bare(&connection, &script, tasks, each).await?;
        }
        // The first round warms up.
        if round > 0 {
            bare.push(theirs);
            linked.push(ours);
            ratios.push(ours * 1000 / theirs.max(1));
        }
    }
    let median = |numbers: &mut Vec<u64>| {
        numbers.sort_unstable();
        numbers[numbers.len() / 2]
    };
    println!("{tasks} tasks, {rounds} rounds of {calls} calls, medians:");
    println!("bare {}/s", median(&mut bare));
    println!("link {}/s", median(&mut linked));
    println!(
        "link / bare {}/1000, half of the rounds between {} and {}",
        median(&mut ratios),
        ratios[ratios.len() / 4],
        ratios[ratios.len() * 3 / 4]
    );
    Ok(())
}

async fn run_bare(
    connection: &MultiplexedConnection,
    script: &Script,
    tasks: u32,
    each: u32,
) -> Result<u64, Box<dyn Error>> {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (mut connection, hash) = (connection.clone(), script.hash().to_owned());
        running.spawn(async move {
            let key = format!("tollgate:{{{task}}}:bucket");
            for _ in 0..each {
                let mut command = redis::cmd("EVALSHA");
                command.arg(&hash).arg(1).arg(&key).arg("10").arg("1000000");
                let answer = connection.send_packed_command(&command).await?;
                assert!(matches!(answer, Value::Array(_)), "{answer:?}");
            }
            redis::RedisResult::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(per_second(tasks * each, began))
}

async fn run_link(link: &Arc<Link>, script: &Script, tasks: u32, each: u32) -> Result<u64, Box<dyn Error>> {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (link, script) = (Arc::clone(link), script.clone());
        running.spawn(async move {
            let key = format!("tollgate:{{{task}}}:bucket");
            for _ in 0..each {
                let call = Call { script: &script, keys: &[key.as_bytes()], args: &[b"10", b"1000000"] };
                let answer = link.call(call).await?;
                assert!(matches!(answer, Value::Array(_)), "{answer:?}");
            }
            Ok::<_, tollgate_redis::link::LinkError>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(per_second(tasks * each, began))
}

fn per_second(calls: u32, began: Instant) -> u64 {
    let micros = u64::try_from(began.elapsed().as_micros()).expect("it is soon over").max(1);
    u64::from(calls) * 1_000_000 / micros
}
