package zkdial

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// ErrServers is returned if a list of servers is empty or has an element that is not of the
// form host:port.
var ErrServers = errors.New("zkdial: invalid list of servers")

// ParseServers splits a list of servers of the form "host:port,...". The default port is
// 2181. An IPv6 address with a port must be enclosed in brackets. A chroot, as in
// "host:port/app", is not supported by the client library and rejected: use the full paths
// of znodes. The error is [ErrServers].
func ParseServers(text string) ([]string, error) {
	return parseServers(strings.Split(text, ","))
}

func parseServers(list []string) (servers []string, err error) {
	for _, s := range list {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if s, err = parseServer(s); err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w: the list is empty; expected host:port, separated by commas", ErrServers)
	}
	return servers, nil
}

func parseServer(s string) (string, error) {
	if strings.Contains(s, "@") {
		return "", fmt.Errorf("%w: an element contains @, and is not shown because of that: credentials are not part of an address", ErrServers)
	}
	if strings.Contains(s, "://") {
		return "", fmt.Errorf("%w: %q is a URL; expected host:port", ErrServers, s)
	}
	if server, chroot, found := strings.Cut(s, "/"); found {
		return "", fmt.Errorf("%w: %q: chroots are not supported; connect to %q and begin the paths of znodes with %q",
			ErrServers, s, server, "/"+chroot)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = s, "2181"
		if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
			host = s[1 : len(s)-1]
		}
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", fmt.Errorf("%w: %q: %w", ErrServers, s, err)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%w: %q: the port is not a number from 1 to 65535", ErrServers, s)
	}
	if host == "" || strings.ContainsAny(host, " []") || strings.ContainsFunc(host, unicode.IsControl) {
		return "", fmt.Errorf("%w: %q: %q is not a host name", ErrServers, s, host)
	}
	return net.JoinHostPort(host, port), nil
}

// hostProvider is the list of servers that the client library uses, in random order. It does not
// resolve host names, because the dialer resolves them for each connection attempt.
type hostProvider struct {
	mu        sync.Mutex
	addresses []string
	next      int
	failed    int       // number of attempts since the last connection that lasted
	connected time.Time // when the last attempt succeeded; zero if that attempt has failed
}

// lastingDuration is the shortest duration of a connection that Next takes for a success. After shorter
// connections the client library must pause, because servers may close each connection right after they have
// accepted it.
const lastingDuration = time.Second

func newHostProvider(addresses []string) *hostProvider {
	h := &hostProvider{addresses: addresses}
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	return h
}

// Init does nothing, because newHostProvider has set the complete list of servers.
func (h *hostProvider) Init([]string) error { return nil }

// Len returns the number of servers.
func (h *hostProvider) Len() int { return len(h.addresses) }

// Next returns the server to try, and whether all servers were tried without success. The client
// library then pauses for a second.
func (h *hostProvider) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.connected.IsZero() && time.Since(h.connected) >= lastingDuration {
		h.failed = 0
	}
	h.connected = time.Time{}
	server = h.addresses[h.next]
	h.next = (h.next + 1) % len(h.addresses)
	retryStart = h.failed >= len(h.addresses)
	if retryStart {
		h.failed = 0
	}
	h.failed++
	return server, retryStart
}

// Connected records that a server has accepted the client.
func (h *hostProvider) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connected = time.Now()
}
