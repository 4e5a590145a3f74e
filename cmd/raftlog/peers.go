package main

// Addresses, and peers in the form tcp://host:port/id.

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// examplePeer is a correct peer, for errors.
const examplePeer = "tcp://10.0.0.1:8047/a"

// hostPort rejects an address that is not of the form host:port. Only an address to listen on may
// omit the host, or have port 0, which is any free port.
func hostPort(name, addr string, listen bool) error {
	host, port, err := net.SplitHostPort(addr)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || !listen && (n == 0 || host == "") {
		return usage("%s %q: it is not of the form host:port, such as 10.0.0.1:8047", name, addr)
	}
	return nil
}

// parsePeer reads tcp://host:port/id or host:port/id. Without an ID that is host:port.
func parsePeer(text string) (api.Peer, error) {
	bad := func(why string) (api.Peer, error) {
		return api.Peer{}, usage("peer %q: %s; an example is %s", text, why, examplePeer)
	}
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		if scheme != "tcp" {
			return bad("the scheme must be tcp")
		}
		rest = after
	}
	addr, id, named := strings.Cut(rest, "/")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return bad("it is not of the form tcp://host:port/id")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad("the port must be from 1 to 65535")
	}
	ip, err := netip.ParseAddr(host)
	if host == "" || err == nil && ip.IsUnspecified() {
		return bad("other peers cannot reach that host")
	}
	switch {
	case !named:
		id = addr
	case id == "":
		return bad("the ID after the slash is missing")
	}
	if strings.ContainsFunc(id, func(r rune) bool { return r == ',' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return bad("an ID must not contain spaces, commas or unprintable characters")
	}
	return api.Peer{ID: id, Addr: addr}, nil
}

// parsePeers reads several.
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

func peerURL(p api.Peer) string {
	if p.ID == p.Addr {
		return "tcp://" + p.Addr
	}
	return "tcp://" + p.Addr + "/" + p.ID
}
