package main

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// examplePeer is an example of a peer for errors and help texts.
const examplePeer = "tcp://10.0.0.1:8047/a"

// checkAddress rejects an address that does not have the form host:port. An address to listen on
// may omit the host, or have port 0, which selects a free port.
func checkAddress(name, addr string, listen bool) error {
	host, port, err := net.SplitHostPort(addr)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || !listen && (n == 0 || host == "") {
		return newUsageError("%s %q: must have the form host:port, such as 10.0.0.1:8047", name, addr)
	}
	return nil
}

// parsePeer parses tcp://host:port/id or host:port/id. Without an ID, the ID is host:port.
func parsePeer(text string) (api.Peer, error) {
	fail := func(reason string) (api.Peer, error) {
		return api.Peer{}, newUsageError("peer %q: %s; an example is %s", text, reason, examplePeer)
	}
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		if scheme != "tcp" {
			return fail("the scheme must be tcp")
		}
		rest = after
	}
	addr, id, named := strings.Cut(rest, "/")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fail("must have the form tcp://host:port/id")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fail("the port must be from 1 to 65535")
	}
	ip, err := netip.ParseAddr(host)
	if host == "" || err == nil && ip.IsUnspecified() {
		return fail("other peers cannot reach this host")
	}
	switch {
	case !named:
		id = addr
	case id == "":
		return fail("the ID after the slash is missing")
	}
	if strings.ContainsFunc(id, func(r rune) bool { return r == ',' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fail("an ID must not contain spaces, commas or unprintable characters")
	}
	return api.Peer{ID: id, Addr: addr}, nil
}

// parsePeers parses a list of peers.
func parsePeers(texts []string) (peers []api.Peer, err error) {
	for _, text := range texts {
		p, err := parsePeer(text)
		if err != nil {
			return nil, err
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// peerURL returns the text that parsePeer parses.
func peerURL(p api.Peer) string {
	if p.ID == p.Addr {
		return "tcp://" + p.Addr
	}
	return "tcp://" + p.Addr + "/" + p.ID
}
