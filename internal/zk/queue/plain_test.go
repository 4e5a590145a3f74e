package queue

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestPlainContender_IgnoresZnodesOfRecreatedQueue checks that a contender whose queue was deleted and created
// again neither deletes the znodes of other contenders that have the names of its earlier znodes nor takes these
// znodes for its own.
func TestPlainContender_IgnoresZnodesOfRecreatedQueue(t *testing.T) {
	srv := zktest.Start(t)
	connect := func() *zk.Conn {
		conn, _, err := srv.Connect(time.Minute)
		require.NoError(t, err)
		return conn
	}
	conn, operator := connect(), connect()
	acl := zk.WorldACL(zk.PermAll)
	remakeQueue := func() {
		for _, znode := range []string{"/q/n_0000000000", "/q"} {
			if err := operator.Delete(znode, -1); err != nil {
				require.ErrorIs(t, err, zk.ErrNoNode)
			}
		}
		_, err := operator.Create("/q", nil, 0, acl)
		require.NoError(t, err)
	}
	cfg := &Config{Config: contender.Config{Dir: "/q", Naming: contender.Prefix("n_")}, Options: connection.Options{Conn: conn, ACL: acl}, Data: []byte("data")}
	newContender := func() *plainContender {
		c := joinPlain(cfg)
		t.Cleanup(c.leave)
		return c
	}
	c, second := newContender(), newContender()
	requests := &requests{cfg: cfg, plain: c}
	defer requests.end()
	perform := func(r contender.Request) contender.Reply {
		res := &result{request: r, path: "/q/" + r.Name}
		requests.perform(res)
		return res.reply
	}
	search := func() []string {
		reply := perform(contender.Request{Kind: contender.Search, Prefixes: []string{"n_"}})
		require.NoError(t, reply.Err)
		return reply.Names
	}
	const name = "n_0000000000"
	remove := func() error { return perform(contender.Request{Kind: contender.Delete, Name: name}).Err }
	for owner, create := range map[string]func() (string, error){
		"another session": func() (string, error) {
			return operator.Create("/q/n_", cfg.Data, zk.FlagEphemeral|zk.FlagSequence, acl)
		},
		"another contender": func() (string, error) { return second.create("n_") },
	} {
		remakeQueue()
		znode, err := c.create("n_")
		require.NoError(t, err)
		require.Equal(t, "/q/"+name, znode)
		require.Equal(t, []string{name}, search(), "the contender's znode")

		remakeQueue()
		again, err := create()
		require.NoError(t, err)
		require.Equal(t, znode, again)
		require.Empty(t, search(), owner)
		require.ErrorIs(t, remove(), zk.ErrNoNode, owner)
		exists, _, err := operator.Exists(znode)
		require.NoError(t, err)
		require.True(t, exists, owner)

		remakeQueue()
		_, err = c.create("n_")
		require.NoError(t, err)
		require.NoError(t, remove())
		require.ErrorIs(t, remove(), zk.ErrNoNode)
	}
}
