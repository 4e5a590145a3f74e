package zktest

import (
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// HostProvider returns a list of servers for [zk.WithHostProvider] that does not resolve
// names and keeps its order. Without names, it uses the names that were passed to
// [zk.Connect], in the order in which Connect has shuffled them.
func HostProvider(names ...string) zk.HostProvider {
	return &hosts{fixed: slices.Clone(names), current: -1, last: -1}
}

type hosts struct {
	mu      sync.Mutex
	fixed   []string
	list    []string
	current int
	last    int // the index of the server of the last connection
}

func (h *hosts) Init(servers []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = h.fixed
	if len(h.list) == 0 {
		h.list = slices.Clone(servers)
	}
	return nil
}

func (h *hosts) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.list)
}

// Next returns the next server of the list. Like go-zookeeper's own provider it requests a pause
// when it returns the server of the last connection.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = (h.current + 1) % len(h.list)
	retryStart = h.current == h.last
	if h.last == -1 {
		h.last = 0
	}
	return h.list[h.current], retryStart
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = h.current
}
