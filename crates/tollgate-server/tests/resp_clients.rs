//! Redis clients of others on the RESP port: redis-cli, redis-benchmark, redis-py, ioredis, node-redis, phpredis.
//!
//! `./test` installs them. redis-py is in the directory that TOLLGATE_VENV names, ioredis and node-redis in that of TOLLGATE_NODE.

use std::process::Command;

use tollgate_testkit::{packages, program};

use crate::service::resp::RespService;
use crate::service::{Directory, self_signed_certificate};

const POLICY: &str = "limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/min, burst: 2 } }]";

/// The output of a program, which must not fail.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

fn redis_cli(service: &RespService, arguments: &[&str]) -> Option<String> {
    let port = service.address.port().to_string();
    Some(output_of(Command::new(program("redis-cli")?).args(["-p", &port]).args(arguments)))
}

#[test]
fn redis_cli_speaks_both_versions() {
    let service = RespService::start(POLICY);
    let Some(pong) = redis_cli(&service, &["PING"]) else { return };
    assert_eq!(pong, "PONG\n");
    for (arguments, expected) in [
        (&["CL.THROTTLE", "u", "15", "30", "60"][..], "0\n16\n15\n-1\n2\n"),
        (&["-3", "CL.THROTTLE", "v", "15", "30", "60"], "0\n16\n15\n-1\n2\n"),
        (&["-3", "TOLLGATE.CHECK", "user", "bob", "COST", "3"], "allowed 0\nreason cost_exceeds_limit\n"),
        (&["TOLLGATE.CHECK", "user", "bob", "COST", "3"], "allowed\n0\nreason\ncost_exceeds_limit\n"),
        (&["DEL", "u"], "1\n"),
        (&["COMMAND", "COUNT"], "24\n"),
        (&["NOTHING", "x"], "ERR unknown command 'NOTHING', with args beginning with: 'x' \n"),
    ] {
        let answer = redis_cli(&service, arguments).unwrap();
        assert!(answer.starts_with(expected), "{arguments:?}: {answer}");
    }
}

#[test]
fn redis_cli_gives_a_password_over_tls() {
    let directory = Directory::new();
    directory.write("password", "secret\n");
    if !self_signed_certificate(&directory) {
        return;
    }
    let policy = format!(
        "tls: {{ cert_file: ./cert.pem, key_file: ./key.pem }}\nresp_password_file: ./password\n{POLICY}"
    );
    let service = RespService::start_in(directory, &policy);
    let certificate = service.service.directory.path("cert.pem");
    let certificate = certificate.to_str().unwrap();
    let tls = ["--no-auth-warning", "--tls", "--cacert", certificate];
    let ask = |arguments: &[&str]| redis_cli(&service, &[&tls[..], arguments].concat());
    let Some(refused) = ask(&["PING"]) else { return };
    assert_eq!(refused, "NOAUTH Authentication required.\n\n");
    assert_eq!(ask(&["-a", "secret", "PING"]).unwrap(), "PONG\n");
    assert_eq!(
        ask(&["-3", "--user", "default", "--pass", "secret", "CL.THROTTLE", "k", "15", "30", "60"]).unwrap(),
        "0\n16\n15\n-1\n2\n"
    );
    // A large answer goes through the records of TLS in pieces.
    let long = "x".repeat(60_000);
    assert_eq!(ask(&["-a", "secret", "ECHO", &long]).unwrap(), format!("{long}\n"));
}

#[test]
fn redis_benchmark_finishes_without_an_error() {
    let service = RespService::start(POLICY);
    let port = service.address.port().to_string();
    for pipeline in ["1", "16"] {
        let Some(benchmark) = program("redis-benchmark") else { return };
        let mut command = Command::new(benchmark);
        command.args(["-p", &port, "-n", "20000", "-c", "50", "-P", pipeline, "-r", "1000", "-q"]);
        let report = output_of(command.args(["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"]));
        assert!(report.contains("requests per second"), "{report}");
        assert!(!report.contains("Error") && !report.contains("WARNING"), "{report}");
    }
    let mut http = service.service.connect();
    let mut count = |outcome: &str| {
        let labels = format!("limit=\"(sent)\",outcome=\"{outcome}\",protocol=\"resp\"");
        http.metric(&format!("tollgate_decisions_total{{{labels}}}")).unwrap()
    };
    assert!(count("allow") + count("deny") >= 40_000.0);
}

const PYTHON: &str = r#"
import sys, redis
port = int(sys.argv[1])
for protocol in (2, 3):
    client = redis.Redis(port=port, protocol=protocol, client_name="test", decode_responses=True)
    assert client.ping() is True
    key = f"key{protocol}"
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60) == [0, 16, 15, -1, 2]
    with client.pipeline(transaction=False) as pipe:
        for _ in range(100):
            pipe.execute_command("CL.THROTTLE", key, 15, 1, 3600)
        answers = pipe.execute()
    # The key keeps its arrival time, two seconds ahead, under numbers by which that is nearly nothing.
    assert [answer[0] for answer in answers] == [0] * 15 + [1] * 85, answers
    check = client.execute_command("TOLLGATE.CHECK", "user", f"u{protocol}")
    if protocol == 2:
        check = dict(zip(check[::2], check[1::2]))
    assert check["allowed"] == 1 and check["limit"] == "per-user" and check["reason"] is None, check
    try:
        client.execute_command("CL.THROTTLE", key, "x", 30, 60)
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert "Couldn't parse as integer: x" in str(error), error
    # A transaction is refused as a whole. The error says what to do instead, and the connection stays usable.
    try:
        with client.pipeline(transaction=True) as pipe:
            pipe.execute_command("CL.THROTTLE", f"multi{protocol}", 4, 1, 3600)
            pipe.execute_command("CL.THROTTLE", f"multi{protocol}", 4, 1, 3600)
            pipe.execute()
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert "pipeline(transaction=False)" in str(error), error
    assert client.exists(f"multi{protocol}") == 0
    assert client.execute_command("CL.THROTTLE", f"multi{protocol}", 4, 1, 3600) == [0, 5, 4, -1, 3600]
    assert 3590 <= client.ttl(f"multi{protocol}") <= 3600
    assert client.unlink(f"multi{protocol}", "absent") == 1
    assert client.ttl(f"multi{protocol}") == -2
    try:
        client.get("x")
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert "CL.THROTTLE" in str(error), error
    assert client.role()[0] == "master"
    assert client.client_info()["name"] == "test"
    assert client.delete(key) == 1
    assert client.client_getname() == "test"
    assert client.info()["redis_version"] == "7.4.0"
# A pool that checks connections before each use, and says so to the server when it takes one.
pool = redis.ConnectionPool(port=port, health_check_interval=0.001)
for _ in range(3):
    assert redis.Redis(connection_pool=pool).execute_command("CL.THROTTLE", "pool", 9, 1, 3600)[0] == 0
print("python is content")
"#;

#[test]
fn redis_py_is_content() {
    let Some(venv) = packages("TOLLGATE_VENV") else { return };
    let service = RespService::start(POLICY);
    let port = service.address.port().to_string();
    let text = output_of(Command::new(venv.join("bin/python3")).args(["-c", PYTHON, &port]));
    assert!(text.ends_with("python is content\n"), "{text}");
}

const NODE: &str = r#"
const Redis = require("ioredis");
const assert = require("assert");
(async () => {
  const client = new Redis({ port: Number(process.argv[1]), connectionName: "test" });
  assert.strictEqual(await client.ping(), "PONG");
  assert.deepStrictEqual(await client.call("CL.THROTTLE", "k", 15, 30, 60), [0, 16, 15, -1, 2]);
  const calls = Array.from({ length: 50 }, () => client.call("CL.THROTTLE", "many", 9, 1, 3600));
  const limited = (await Promise.all(calls)).map((answer) => answer[0]);
  assert.deepStrictEqual(limited, [...Array(10).fill(0), ...Array(40).fill(1)]);
  await assert.rejects(client.call("CL.THROTTLE", "k", "x", 30, 60), /Couldn't parse as integer: x/);
  // Queued commands are not run, in a transaction that is sent at once and in one that is sent command by command.
  const transaction = client.multi().call("CL.THROTTLE", "multi", 4, 1, 3600);
  await assert.rejects(transaction.exec(), /EXECABORT|MULTI is not supported/);
  await assert.rejects(client.multi({ pipeline: false }), /MULTI is not supported/);
  await assert.rejects(client.call("CL.THROTTLE", "multi", 4, 1, 3600), /MULTI was refused/);
  await assert.rejects(client.exec(), /EXECABORT/);
  assert.strictEqual(await client.exists("multi"), 0);
  assert.deepStrictEqual(await client.call("CL.THROTTLE", "multi", 4, 1, 3600), [0, 5, 4, -1, 3600]);
  await assert.rejects(client.get("x"), /CL.THROTTLE/);
  assert.strictEqual(await client.del("k"), 1);
  await client.quit();
  console.log("node is content");
})().catch((error) => { console.error(error); process.exit(1); });
"#;

#[test]
fn ioredis_is_content() {
    let (Some(modules), Some(node)) = (packages("TOLLGATE_NODE"), program("node")) else { return };
    let service = RespService::start(POLICY);
    let port = service.address.port().to_string();
    let text = output_of(Command::new(node).args(["-e", NODE, "--", &port]).current_dir(modules));
    assert!(text.ends_with("node is content\n"), "{text}");
}

const NODE_REDIS: &str = r#"
const { createClient } = require("redis");
const assert = require("assert");
(async () => {
  for (const RESP of [2, 3]) {
    const url = `redis://127.0.0.1:${process.argv[1]}`;
    const client = createClient({ url, RESP, name: "test", pingInterval: 20 });
    client.on("error", (error) => { throw error; });
    await client.connect();
    assert.strictEqual(await client.ping(), "PONG");
    const throttle = (key) => ["CL.THROTTLE", key, "4", "1", "3600"];
    assert.deepStrictEqual(await client.sendCommand(throttle(`k${RESP}`)), [0, 5, 4, -1, 3600]);
    // A transaction is refused as a whole.
    const transaction = client.multi().addCommand(throttle(`multi${RESP}`)).addCommand(throttle(`multi${RESP}`));
    await assert.rejects(transaction.exec());
    assert.strictEqual(await client.exists(`multi${RESP}`), 0);
    // The same commands without a transaction run.
    const pipeline = client.multi().addCommand(throttle(`multi${RESP}`)).addCommand(throttle(`multi${RESP}`));
    assert.deepStrictEqual((await pipeline.execAsPipeline()).map((answer) => answer[2]), [4, 3]);
    await assert.rejects(client.get("x"), /CL.THROTTLE/);
    assert.strictEqual(await client.clientGetName(), "test");
    assert.strictEqual(await client.del(`k${RESP}`), 1);
    await new Promise((resolve) => setTimeout(resolve, 60)); // some pings
    await client.close();
  }
  console.log("node is content");
})().catch((error) => { console.error(error); process.exit(1); });
"#;

#[test]
fn node_redis_is_content() {
    let (Some(modules), Some(node)) = (packages("TOLLGATE_NODE"), program("node")) else { return };
    let service = RespService::start(POLICY);
    let port = service.address.port().to_string();
    let text = output_of(Command::new(node).args(["-e", NODE_REDIS, "--", &port]).current_dir(modules));
    assert!(text.ends_with("node is content\n"), "{text}");
}

const PHP: &str = r#"
if (!extension_loaded('redis')) { echo "no phpredis\n"; exit(0); }
function same($found, $expected) {
    if ($found !== $expected) { throw new Exception(var_export($found, true) . ' is not ' . var_export($expected, true)); }
}
$throttle = fn($redis, $key) => $redis->rawCommand('CL.THROTTLE', $key, 4, 1, 3600);
foreach (['connect', 'pconnect', 'pconnect'] as $round => $connect) {
    ini_set('redis.pconnect.echo_check_liveness', '1');
    $redis = new Redis();
    $redis->$connect('127.0.0.1', (int)$argv[1], 5);
    $redis->client('SETNAME', 'test');
    same($redis->ping(), true);
    same($throttle($redis, "k$round"), [0, 5, 4, -1, 3600]);
    same($redis->exists("k$round", 'absent'), 1);
    same($redis->unlink("k$round"), 1);
    same($redis->ttl("k$round"), -2);
    $answers = $redis->multi(Redis::PIPELINE)->rawCommand('CL.THROTTLE', "p$round", 4, 1, 3600)->exec();
    same($answers, [[0, 5, 4, -1, 3600]]);
    same($redis->get('x'), false);
    same(str_contains($redis->getLastError(), 'CL.THROTTLE'), true);
    // phpredis reads the answer to MULTI before it sends more.
    $redis->clearLastError();
    same($redis->multi(), false);
    same(str_contains($redis->getLastError(), 'MULTI is not supported'), true);
    same($throttle($redis, "m$round"), false);
    same(str_contains($redis->getLastError(), 'MULTI was refused'), true);
    $redis->rawCommand('DISCARD');
    same($throttle($redis, "m$round"), [0, 5, 4, -1, 3600]);
    unset($redis);
}
echo "php is content\n";
"#;

#[test]
fn phpredis_is_content() {
    let Some(php) = program("php") else { return };
    let service = RespService::start(POLICY);
    let port = service.address.port().to_string();
    let text = output_of(Command::new(php).args(["-r", PHP, "--", &port]));
    if text.ends_with("no phpredis\n") {
        return tollgate_testkit::skip("the PHP extension redis is not installed");
    }
    assert!(text.ends_with("php is content\n"), "{text}");
}
