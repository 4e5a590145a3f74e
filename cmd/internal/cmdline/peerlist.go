package cmdline

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// ExamplePeer is an example of a peer for errors and help texts.
const ExamplePeer = "tcp://10.0.0.1:8047/a"

// ParsePeer parses tcp://host:port/id, host:port/id or id=host:port. Without an ID, the ID is host:port.
func ParsePeer(text string) (api.Peer, error) {
	fail := func(reason string) (api.Peer, error) {
		return api.Peer{}, fmt.Errorf("peer %q: %s; for example %s", text, reason, ExamplePeer)
	}
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		if scheme != "tcp" {
			return fail("the scheme must be tcp")
		}
		rest = after
	}
	addr, id, named := strings.Cut(rest, "/")
	if before, after, found := strings.Cut(rest, "="); found && !IsHostPort(addr) {
		id, addr, named = before, after, true
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.ContainsAny(host, " /=") {
		return fail("must have the form tcp://host:port/id or id=host:port")
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
		return fail("the ID is missing")
	}
	if strings.ContainsFunc(id, func(r rune) bool { return r == ',' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fail("an ID must not contain spaces, commas or unprintable characters")
	}
	return api.Peer{ID: id, Addr: addr}, nil
}

// IsHostPort reports whether an address has the form host:port, with a host and a port from 1 to 65535.
func IsHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || strings.ContainsAny(host, " /=") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// PeerURL returns a peer as a URL that [ParsePeer] parses.
func PeerURL(p api.Peer) string {
	if p.ID == p.Addr {
		return "tcp://" + p.Addr
	}
	return "tcp://" + p.Addr + "/" + p.ID
}

// PeerList contains peers, each with a unique ID and a unique address. A PeerList is the value of a flag, whose text
// lists the peers, separated by commas.
type PeerList []api.Peer

func (l *PeerList) String() string { return strings.Join(l.GetSlice(), ",") }

// Type implements [pflag.Value].
func (l *PeerList) Type() string { return "peers" }

// Set adds the peers in a text, which are separated by commas. An empty text adds no peers.
func (l *PeerList) Set(text string) error {
	if text == "" {
		return nil
	}
	for element := range strings.SplitSeq(text, ",") {
		if err := l.Append(strings.TrimSpace(element)); err != nil {
			return err
		}
	}
	return nil
}

// Append implements [pflag.SliceValue].
func (l *PeerList) Append(text string) error {
	p, err := ParsePeer(text)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(*l, func(q api.Peer) bool { return q.ID == p.ID || q.Addr == p.Addr }); i >= 0 {
		return fmt.Errorf("%s and %s have the same ID or address; IDs and addresses must be unique, such as %s", PeerURL((*l)[i]), PeerURL(p), ExamplePeer)
	}
	*l = append(*l, p)
	return nil
}

// Replace implements [pflag.SliceValue].
func (l *PeerList) Replace(texts []string) error {
	*l = nil
	return l.Set(strings.Join(texts, ","))
}

// GetSlice implements [pflag.SliceValue].
func (l *PeerList) GetSlice() (all []string) {
	for _, p := range *l {
		all = append(all, PeerURL(p))
	}
	return all
}

// FromMapping implements [ListOfMappings]. The mapping must contain the keys id and addr.
func (l *PeerList) FromMapping(values map[string]string) (string, error) {
	if len(values) != 2 || values["id"] == "" || values["addr"] == "" {
		return "", errors.New("a peer has the keys id and addr, and no others")
	}
	return values["addr"] + "/" + values["id"], nil
}
