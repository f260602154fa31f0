use std::net::IpAddr;
use std::path::Path;

use tollgate_testkit::Random;

use crate::{ClientIp, Networks, Policy};

fn client_ip(settings: &str) -> ClientIp {
    let file = format!("identity: {{ client_ip: {settings} }}");
    Policy::read(Path::new("test.yaml"), &file).unwrap().identity.client_ip
}

/// Settings, peer, header lines, and whose request it is.
#[track_caller]
fn expect(settings: &str, rows: &[(&str, &[&str], &str)]) {
    let client_ip = client_ip(settings);
    for (peer, lines, expected) in rows {
        let client = client_ip.client(peer.parse().unwrap(), lines.iter().copied());
        assert_eq!(client.to_string(), *expected, "{settings}: {peer} says {lines:?}");
    }
}

#[test]
fn without_settings_nobody_is_believed() {
    expect("{}", &[("203.0.113.7", &["1.2.3.4"], "203.0.113.7"), ("127.0.0.1", &["1.2.3.4"], "127.0.0.1")]);
}

#[test]
fn forwarded_for_is_read_from_the_right_up_to_the_first_stranger() {
    expect(
        "{ trusted_proxies: [10.0.0.0/8, 127.0.0.1, fd00::/8] }",
        &[
            ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            // What a stranger wrote before he came to us is not believed.
            ("10.0.0.1", &["127.0.0.1, 6.6.6.6, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7, 10.9.9.9, 10.1.1.1"], "203.0.113.7"),
            // Several lines are one.
            ("10.0.0.1", &["6.6.6.6", "203.0.113.7, 10.1.1.1"], "203.0.113.7"),
            // Strangers who speak to us directly say nothing of interest.
            ("203.0.113.9", &["10.0.0.1"], "203.0.113.9"),
            // All ours: the first of them.
            ("10.0.0.1", &["10.2.2.2, 10.1.1.1"], "10.2.2.2"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            // What cannot be read ends the walk.
            ("10.0.0.1", &["203.0.113.7, unknown, 10.1.1.1"], "10.1.1.1"),
            ("10.0.0.1", &["203.0.113.7, , 10.1.1.1"], "10.1.1.1"),
            // Every way to write an address.
            ("10.0.0.1", &["203.0.113.7:4711"], "203.0.113.7"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["[fe80::1%eth0]:80"], "fe80::1"),
            ("10.0.0.1", &["::ffff:203.0.113.7"], "203.0.113.7"),
            ("::ffff:10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("fd00::1", &["2001:db8::1, fd12::1"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]x"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7:port"], "10.0.0.1"),
        ],
    );
}

#[test]
fn a_longer_chain_than_any_real_one_is_not_followed() {
    let chain = vec!["10.0.0.2"; 100].join(", ");
    expect("{ trusted_proxies: [10.0.0.0/8] }", &[("10.0.0.1", &["203.0.113.7", &chain], "10.0.0.2")]);
}

#[test]
fn hops_count_from_the_right() {
    let rows: &[(&str, &[&str], &str)] = &[
        ("10.0.0.1", &["6.6.6.6, 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        ("10.0.0.1", &["10.0.0.2"], "10.0.0.1"), // fewer than there are proxies
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &["oops, 203.0.113.7"], "203.0.113.7"),
    ];
    expect("{ trusted_hops: 2 }", rows);
    expect("{ trusted_hops: 1 }", &[("10.0.0.1", &["6.6.6.6, 203.0.113.7"], "203.0.113.7")]);
    expect("{ trusted_hops: 0 }", &[("10.0.0.1", &["6.6.6.6"], "10.0.0.1")]);
}

#[test]
fn forwarded_is_read_as_its_rfc_says() {
    expect(
        "{ trusted_proxies: [10.0.0.0/8], header: forwarded }",
        &[
            ("10.0.0.1", &["for=203.0.113.7;proto=https;by=10.0.0.1"], "203.0.113.7"),
            ("10.0.0.1", &["for=6.6.6.6, For=203.0.113.7 ; host=\"a,b;c\", for=10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &["for=\"[2001:db8::17]:4711\""], "2001:db8::17"),
            ("10.0.0.1", &["for=\"203.0.113.7:80\""], "203.0.113.7"),
            ("10.0.0.1", &["for=203.0.113.7, for=_hidden"], "10.0.0.1"),
            ("10.0.0.1", &["for=203.0.113.7, for=unknown, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=203.0.113.7;for=6.6.6.6"], "10.0.0.1"),
            ("10.0.0.1", &["for=\"203.0.113.7"], "10.0.0.1"),
            ("10.0.0.1", &["nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["proto=https"], "10.0.0.1"),
            ("203.0.113.9", &["for=10.0.0.1"], "203.0.113.9"),
        ],
    );
}

/// What a proxy appends to a line is read as its own element, or the line is not read.
#[test]
fn quotes_out_of_place_make_a_line_of_forwarded_unreadable() {
    let rows = [
        ("for=6.6.6.6;x=\", for=203.0.113.7", "10.0.0.1"),
        ("for=6.6.6.6;x=\"\\\", for=203.0.113.7", "10.0.0.1"),
        ("for=6.6.6.6, for=203.0.113.7;x=\"a\\", "10.0.0.1"),
        ("for=6.6.6.6;x=a\"b\", for=203.0.113.7", "10.0.0.1"),
        ("for=6.6.6.6;x=\"a\"b, for=203.0.113.7", "10.0.0.1"),
        ("for=6.6.6.6;\"x\"=a, for=203.0.113.7", "10.0.0.1"),
        ("for=6.6.6.6;x=a\\, for=203.0.113.7", "10.0.0.1"),
        ("\", for=203.0.113.7", "10.0.0.1"),
        ("for=6.6.6.6;x=\"a\\\"b, c\", for=203.0.113.7", "203.0.113.7"),
        ("for=6.6.6.6;x=\"\" , for = \"203.0.113.7\" ;", "203.0.113.7"),
        ("for=6.6.6.6, for=\"20\\3.0.113.7\"", "203.0.113.7"),
        (", for=203.0.113.7;;by=a", "203.0.113.7"),
        ("for=203.0.113.7,", "10.0.0.1"), // an empty element ends the walk
        ("for=203.0.113.7;secure", "10.0.0.1"),
    ];
    for (line, expected) in rows {
        expect("{ trusted_proxies: [10.0.0.0/8], header: forwarded }", &[("10.0.0.1", &[line], expected)]);
    }
    expect(
        "{ trusted_proxies: [10.0.0.0/8], header: forwarded }",
        &[("10.0.0.1", &["for=6.6.6.6;x=\"", "for=203.0.113.7"], "203.0.113.7")],
    );
}

#[test]
fn the_chain_goes_from_the_peer_to_the_client() {
    for (settings, line, expected) in [
        (
            "trusted_proxies: [10.0.0.0/8]",
            "6.6.6.6, 203.0.113.7, 10.0.0.2",
            &["10.0.0.1", "10.0.0.2", "203.0.113.7"][..],
        ),
        ("trusted_proxies: [10.0.0.0/8]", "6.6.6.6, ?, 10.0.0.2", &["10.0.0.1", "10.0.0.2"]),
        ("trusted_proxies: [10.0.0.0/8], header: x-real-ip", "203.0.113.7", &["10.0.0.1", "203.0.113.7"]),
        ("trusted_hops: 2", "6.6.6.6, 203.0.113.7, 10.0.0.2", &["10.0.0.1", "10.0.0.2", "203.0.113.7"]),
        ("trusted_hops: 2", "10.0.0.2", &["10.0.0.1"]),
        ("trusted_proxies: [10.1.0.0/16]", "203.0.113.7", &["10.0.0.1"]),
    ] {
        let chain = client_ip(&format!("{{ {settings} }}")).chain("10.0.0.1".parse().unwrap(), [line]);
        let chain: Vec<String> = chain.iter().map(ToString::to_string).collect();
        assert_eq!(chain, expected, "{settings}: {line}");
    }
}

#[test]
fn a_header_with_one_address_is_believed_from_our_proxies_only() {
    for header in ["x-real-ip", "cf-connecting-ip"] {
        expect(
            &format!("{{ trusted_proxies: [10.0.0.0/8], header: {header} }}"),
            &[
                ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
                ("10.0.0.1", &["203.0.113.7", "6.6.6.6"], "10.0.0.1"),
                ("10.0.0.1", &["?"], "10.0.0.1"),
                ("203.0.113.9", &["10.0.0.1"], "203.0.113.9"),
            ],
        );
    }
}

#[test]
fn a_network_of_any_length_contains_what_it_should() {
    let rows = [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("0.0.0.0/0", "203.0.113.7", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("::/0", "2001:db8::1", true),
        ("192.168.1.128/25", "192.168.1.129", true),
        ("192.168.1.128/25", "192.168.1.127", false),
        ("2001:db8::/33", "2001:db8:8000::", false),
        ("2001:db8::/33", "2001:db8:7fff::", true),
    ];
    for (network, peer, expected) in rows {
        let client_ip = client_ip(&format!("{{ trusted_proxies: ['{network}'] }}"));
        assert_eq!(client_ip.trusts(peer.parse().unwrap()), expected, "{peer} of {network}");
    }
}

/// Whether an address is in one network, bit by bit.
fn contains((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    let bits = |address: IpAddr| -> Vec<bool> {
        let octets = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        octets.iter().flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1 == 1)).collect()
    };
    let length = usize::from(length);
    network.is_ipv4() == address.is_ipv4() && bits(network)[..length] == bits(address)[..length]
}

#[test]
fn networks_agree_with_asking_each_network() {
    let mut random = Random::new(20);
    // Few different bits, so that networks overlap, touch, and contain the addresses.
    let address = |random: &mut Random| match random.chance(1, 2) {
        true => IpAddr::from([10, 0, random.below(4) as u8 * 64, random.below(8) as u8 * 32]),
        false => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, random.below(64) as u16 * 0x400]),
    };
    for _ in 0..2_000 {
        let network = |random: &mut Random| {
            let address = address(random);
            let most = if address.is_ipv4() { 32 } else { 128 };
            (address, if random.chance(1, 20) { 0 } else { random.between(most - 16, most) as u8 })
        };
        let listed: Vec<(IpAddr, u8)> = (0..random.below(12)).map(|_| network(&mut random)).collect();
        let networks: Networks = listed.iter().copied().collect();
        assert!(networks.iter().eq(&listed));
        for _ in 0..50 {
            let address = address(&mut random);
            let expected = listed.iter().any(|network| contains(*network, address));
            assert_eq!(networks.contain(address), expected, "{address} in {listed:?}");
        }
    }
}

#[test]
fn the_prefix_of_an_ipv6_client_can_be_chosen() {
    let address = "2001:db8:1:2:3:4:5:6".parse().unwrap();
    for (prefix, expected) in [
        (48, "2001:db8:1::/48"),
        (56, "2001:db8:1::/56"),
        (64, "2001:db8:1:2::/64"),
        (128, "2001:db8:1:2:3:4:5:6"),
    ] {
        assert_eq!(client_ip(&format!("{{ ipv6_prefix: {prefix} }}")).attribute(address), expected);
    }
}
