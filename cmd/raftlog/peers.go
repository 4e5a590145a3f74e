package main

// Peers as they are written on command lines and in files: tcp://host:port/id.

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// parsePeer reads tcp://host:port/id or host:port/id. Without an ID that is host:port.
func parsePeer(text string) (raftlog.Peer, error) {
	bad := func(why string) (raftlog.Peer, error) {
		return raftlog.Peer{}, usage("peer %q: %s; peers are written tcp://host:port/id, or host:port if that is the ID", text, why)
	}
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		if scheme != "tcp" {
			return bad("the scheme has to be tcp")
		}
		rest = after
	}
	addr, id, named := strings.Cut(rest, "/")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return bad("no host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad("the port has to be from 1 to 65535")
	}
	ip, err := netip.ParseAddr(host)
	if host == "" || err == nil && ip.IsUnspecified() {
		return bad("others cannot reach that host")
	}
	switch {
	case !named:
		id = addr
	case id == "":
		return bad("there is no ID behind the slash")
	}
	if strings.ContainsFunc(id, func(r rune) bool { return r == ',' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return bad("an ID has no spaces, commas and unprintable characters")
	}
	return raftlog.Peer{ID: id, Addr: addr}, nil
}

// parsePeers reads several.
func parsePeers(texts []string) (peers []raftlog.Peer, err error) {
	for _, text := range texts {
		p, err := parsePeer(text)
		if err != nil {
			return nil, err
		}
		peers = append(peers, p)
	}
	return peers, nil
}

func peerURL(p raftlog.Peer) string {
	if p.ID == p.Addr {
		return "tcp://" + p.Addr
	}
	return "tcp://" + p.Addr + "/" + p.ID
}
