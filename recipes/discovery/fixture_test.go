package discovery

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	base    = "/services"
	shop    = base + "/shop"
	one     = shop + "/one"
	timeout = 4 * time.Second
)

// world is a test in a bubble with a server.
type world struct {
	*testing.T
	srv *zktest.Server
}

func play(t *testing.T, f func(w world)) {
	synctest.Test(t, func(t *testing.T) { f(world{t, zktest.Start(t)}) })
}

func (w world) connect() *Discovery {
	return w.discovery(func() (*zk.Conn, <-chan zk.Event, error) {
		return w.srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	})
}

func (w world) discovery(connect func() (*zk.Conn, <-chan zk.Event, error)) *Discovery {
	conn, _, err := connect()
	require.NoError(w, err)
	synctest.Wait()
	d, err := New(conn, base, recipes.WithSessionTimeout(timeout))
	require.NoError(w, err)
	return d
}

func instance(id string) Instance {
	return Instance{Name: "shop", ID: id, Address: "host-" + id, Port: 80, Registered: 1}
}

func (w world) register(d *Discovery, id string) *Registration {
	r, err := d.Register(w.Context(), instance(id))
	require.NoError(w, err)
	w.Cleanup(func() { w.end(r.Close) })
	return r
}

func (w world) provider(d *Discovery, c Choice) *Provider {
	p, err := d.Provider(w.Context(), "shop", c)
	require.NoError(w, err)
	w.Cleanup(func() { w.end(p.Close) })
	return p
}

// end closes what a test has left open.
func (w world) end(close func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := close(ctx); !errors.Is(err, recipes.ErrConnClosed) {
		require.NoError(w, err)
	}
}

// pass lets time pass, and then what happens at that instant happen.
func (w world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ids of what the provider chooses from.
func (w world) ids(p *Provider) (ids string) {
	instances, err := p.Instances()
	require.NoError(w, err)
	for _, i := range instances {
		ids += i.ID + " "
	}
	return strings.TrimSpace(ids)
}

func (w world) put(d *Discovery, id, data string) {
	_, err := d.at.Conn.Create(path.Join(shop, id), []byte(data), 0, d.at.ACL)
	require.NoError(w, err)
}

// owned reports whether an instance's znode is there, of the session.
func (w world) owned(id string, session int64) bool {
	return strings.Contains(w.srv.Tree(), id+" ") && strings.Contains(w.srv.Tree(), fmt.Sprintf("ephemeral=%#x", session))
}
