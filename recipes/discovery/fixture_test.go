package discovery

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	base     = "/services"
	shopPath = base + "/shop"
	onePath  = shopPath + "/one"
	timeout  = bubble.SessionTimeout
)

func connect(w *bubble.Test, options ...func(*zk.Conn)) *Discovery {
	return newDiscovery(w, w.Connect(options...))
}

func newDiscovery(w *bubble.Test, conn *zk.Conn) *Discovery {
	d, err := New(conn, base, recipes.WithSessionTimeout(timeout))
	require.NoError(w, err)
	return d
}

// connectLosable returns a Discovery, and a function that makes its connection lose its session: the client sends
// a wrong password in its next handshake, so that the server answers that the session has expired. At the server
// the session continues until its timeout.
func connectLosable(w *bubble.Test) (d *Discovery, loseSession func()) {
	var wrong atomic.Bool
	dial := w.Server.Dialer()
	conn := w.Connect(zk.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
		link, err := dial(network, address, limit)
		if err == nil && wrong.Swap(false) {
			link = &wrongPassword{Conn: link}
		}
		return link, err
	}))
	return newDiscovery(w, conn), func() {
		lost := conn.SessionID()
		wrong.Store(true)
		w.Server.DropConnections(lost)
		for conn.SessionID() == lost || conn.State() != zk.StateHasSession {
			bubble.Advance(10 * time.Millisecond)
		}
	}
}

// wrongPassword is a network connection that changes the last byte of the first packet that is written to it: a
// handshake ends with the password of the session.
type wrongPassword struct {
	net.Conn
	changed bool
}

func (c *wrongPassword) Write(packet []byte) (int, error) {
	if !c.changed {
		c.changed = true
		packet = slices.Clone(packet)
		packet[len(packet)-1]++
	}
	return c.Conn.Write(packet)
}

func instance(id string) Instance {
	return Instance{Name: "shop", ID: id, Address: "host-" + id, Port: 80, Registered: 1}
}

func register(w *bubble.Test, d *Discovery, id string) *Registration {
	r, err := d.Register(w.Context(), instance(id))
	require.NoError(w, err)
	w.Cleanup(func() { closeRepeatedly(w, r) })
	return r
}

// startRegister registers an instance in a goroutine, because Register may wait, for example while another client
// owns the znode.
func startRegister(w *bubble.Test, d *Discovery, i Instance) <-chan *Registration {
	return bubble.Async(func() *Registration {
		r, err := d.Register(w.Context(), i)
		require.NoError(w, err)
		return r
	})
}

func newProvider(w *bubble.Test, d *Discovery, opts ...ProviderOption) *Provider {
	p, err := d.Provider(w.Context(), "shop", opts...)
	require.NoError(w, err)
	w.Cleanup(func() { closeRepeatedly(w, p) })
	return p
}

// closeRepeatedly closes a registration or a provider, more than once.
func closeRepeatedly(w *bubble.Test, c io.Closer) {
	if err := bubble.Repeated(c.Close); !errors.Is(err, recipes.ErrConnClosed) {
		require.NoError(w, err)
	}
}

// instanceIDs returns the IDs of the instances of a provider, separated by spaces.
func instanceIDs(w *bubble.Test, p *Provider) (ids string) {
	instances, err := p.Instances()
	require.NoError(w, err)
	for _, i := range instances {
		ids += i.ID + " "
	}
	return strings.TrimSpace(ids)
}

// putChild creates a persistent child of the service.
func putChild(w *bubble.Test, d *Discovery, id, data string) {
	_, err := d.setup.Conn.Create(path.Join(shopPath, id), []byte(data), 0, d.setup.ACL)
	require.NoError(w, err)
}

// isOwned reports whether the znode of the instance id exists and belongs to the session.
func isOwned(w *bubble.Test, id string, session int64) bool {
	return strings.Contains(w.Server.Tree(), id+" ") && strings.Contains(w.Server.Tree(), fmt.Sprintf("ephemeral=%#x", session))
}
