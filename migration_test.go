package leaderelection_test

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// A scheme is how a hand-written election names its candidates.
type scheme struct {
	prefix    string
	protected bool // created with CreateProtectedEphemeralSequential
	naming    leaderelection.Naming
}

// schemes are those that are seen in public programs.
var schemes = []scheme{
	{prefix: "", naming: leaderelection.Prefix("")}, // Vitess
	{prefix: "0", naming: leaderelection.Prefix("0")},
	{prefix: "n_", naming: leaderelection.Prefix("n_")},
	{prefix: "node_", naming: leaderelection.Prefix("node_")},
	{prefix: "c_", naming: leaderelection.Prefix("c_")},
	{prefix: "zkonce-", naming: leaderelection.Prefix("zkonce-")},
	{prefix: "lock-", naming: leaderelection.Prefix("lock-")},
	{prefix: "le_", naming: leaderelection.Prefix("le_")},
	{prefix: "guid-n_", naming: leaderelection.Prefix("guid-n_")},
	{prefix: "guid-n_", protected: true, naming: leaderelection.ProtectedPrefix("guid-n_")},
	{prefix: "n_", protected: true, naming: leaderelection.ProtectedPrefix("n_")},
}

func (s scheme) String() string {
	if s.protected {
		return "_c_<guid>-" + s.prefix + "<number>"
	}
	return s.prefix + "<number>"
}

// candidates returns those children that a program of the scheme takes for candidates,
// in its order. It sees no others.
func (s scheme) candidates(children []string) (names []string) {
	for _, name := range children {
		head, ok := strings.CutSuffix(name, name[max(0, len(name)-10):])
		if s.protected {
			const guid = len("_c_") + 32 + len("-")
			ok = ok && strings.HasPrefix(head, "_c_") && len(head) >= guid
			head = head[min(len(head), guid):]
		}
		if ok && head == s.prefix {
			names = append(names, name)
		}
	}
	if !s.protected {
		slices.Sort(names) // by name, as many programs do
		return names
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return names
}

// fleet is the instances of one program, of both versions.
type fleet struct {
	*testing.T
	srv    *zktest.Server
	scheme scheme

	mu      sync.Mutex
	leading map[string]func() bool // by instance: whether it still leads
	served  int
}

// begin notes that an instance leads from now on, for as long as leads says so.
func (f *fleet) begin(instance string, leads func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, still := range f.leading {
		if other != instance && still() {
			f.Errorf("%s and %s lead", other, instance)
		}
	}
	f.leading[instance] = leads
	f.served++
}

func (f *fleet) leaders() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for instance, leads := range f.leading {
		if leads() {
			names = append(names, instance)
		}
	}
	return names
}

// instance is one running instance.
type instance interface {
	name() string
	quit()
	crash()
}

// old is an instance of the hand-written version.
type old struct {
	*fleet
	id     string
	conn   *zk.Conn
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	own    string
}

func (f *fleet) startOld(id string) instance {
	conn, _, err := f.srv.Connect(4 * time.Second)
	require.NoError(f, err)
	o := &old{fleet: f, id: id, conn: conn, done: make(chan struct{})}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	go o.run()
	return o
}

func (o *old) name() string { return o.id }

func (o *old) run() {
	defer close(o.done)
	var err error
	if o.scheme.protected {
		o.own, err = o.conn.CreateProtectedEphemeralSequential(node+"/"+o.scheme.prefix, []byte(o.id), zk.WorldACL(zk.PermAll))
	} else {
		o.own, err = o.conn.Create(node+"/"+o.scheme.prefix, []byte(o.id), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	}
	if err != nil {
		return
	}
	for {
		children, _, err := o.conn.Children(node)
		if err != nil {
			return
		}
		names := o.scheme.candidates(children)
		i := slices.Index(names, path.Base(o.own))
		switch {
		case i < 0:
			return
		case i == 0:
			o.begin(o.id, func() bool { return o.ctx.Err() == nil })
			<-o.ctx.Done()
			return
		}
		exists, _, event, err := o.conn.ExistsW(node + "/" + names[i-1])
		if err != nil {
			return
		}
		if !exists {
			continue
		}
		select {
		case e := <-event:
			// It takes any event on its predecessor for the predecessor's end.
			if e.Type != zk.EventNodeDeleted {
				o.Errorf("%s: %v on its predecessor", o.id, e.Type)
			}
		case <-o.ctx.Done():
			return
		}
	}
}

func (o *old) quit() {
	o.cancel()
	<-o.done
	// It knows that its znode was never written to.
	if err := o.conn.Delete(o.own, 0); err != nil {
		o.Errorf("%s: delete: %v", o.id, err)
	}
	synctest.Wait()
	o.conn.Close()
}

func (o *old) crash() {
	o.cancel()
	<-o.done
	require.NoError(o, o.srv.ExpireSession(o.conn.SessionID()))
	synctest.Wait()
	o.conn.Close()
}

// fresh is an instance of the version that uses this library.
type fresh struct {
	*fleet
	id   string
	conn *zk.Conn
	e    *leaderelection.Election
}

func (f *fleet) startFresh(id string) instance {
	conn, _, err := f.srv.Connect(4 * time.Second)
	require.NoError(f, err)
	e, err := leaderelection.NewElection(conn, node, leaderelection.WithNaming(f.scheme.naming), leaderelection.WithClientName(id))
	require.NoError(f, err)
	go func() {
		if err := e.ElectLeader(); err != nil {
			f.Logf("%s: %v", id, err) // after crash
		}
	}()
	go func() {
		for s := range e.Status() {
			if s.Role == leaderelection.Leader {
				f.begin(id, func() bool { return s.Leadership.Err() == nil })
			}
		}
	}()
	return &fresh{f, id, conn, e}
}

func (n *fresh) name() string { return n.id }

func (n *fresh) quit() {
	require.NoError(n, n.e.Resign())
	synctest.Wait()
	n.conn.Close()
}

// crash cuts the instance off for longer than its session lives.
func (n *fresh) crash() {
	id := n.conn.SessionID()
	n.srv.Blackhole(zktest.BothWays, id)
	time.Sleep(8 * time.Second)
	n.srv.Heal(id)
	time.Sleep(2 * time.Second)
	_ = n.e.Resign()
	n.conn.Close()
}

// Three instances are replaced one after another by the new version, and then by the
// old one again, by all ways in which an instance can end. There is one leader whenever
// nothing happens, and there are never two.
func TestRollingUpgradeOfAHandWrittenElection(t *testing.T) {
	for _, s := range schemes {
		for _, leaderFirst := range []bool{true, false} {
			for _, crash := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v/leaderFirst=%v/crash=%v", s, leaderFirst, crash), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { rollingUpgrade(t, s, leaderFirst, crash) })
				})
			}
		}
	}
}

func rollingUpgrade(t *testing.T, s scheme, leaderFirst, crash bool) {
	f := &fleet{T: t, srv: zktest.Start(t), scheme: s, leading: map[string]func() bool{}}
	operator, _, err := f.srv.Connect(4 * time.Second)
	require.NoError(t, err)
	_, err = operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	// An election that has a child which only is named like a candidate.
	_, err = operator.Create(node+"/"+s.prefix, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	if !s.protected {
		// A hand-written candidate does not tell it from a candidate.
		require.NoError(t, operator.Delete(node+"/"+s.prefix+"0000000000", -1))
	}

	var running []instance
	settle := func() {
		t.Helper()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		leaders := f.leaders()
		require.Len(t, leaders, 1)
		leader, found, err := leaderelection.CurrentLeader(operator, node)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, leaders[0], leader.Name)
		all, err := leaderelection.Candidates(operator, node)
		require.NoError(t, err)
		require.Len(t, all, len(running))
	}
	replace := func(start func(string) instance, version string) {
		for i := range running {
			at := 0 // of the leader
			if !leaderFirst {
				at = len(running) - 1 - i
			}
			ending := running[at]
			next := start(fmt.Sprint(version, i))
			if crash {
				ending.crash()
			} else {
				ending.quit()
			}
			running = append(slices.Delete(running, at, at+1), next)
			settle()
		}
	}
	for i := range 3 {
		running = append(running, f.startOld(fmt.Sprint("old", i)))
		synctest.Wait()
	}
	settle()
	replace(f.startFresh, "new")
	replace(f.startFresh, "newer")
	replace(f.startOld, "older")
	for _, r := range running {
		r.quit()
	}
	require.GreaterOrEqual(t, f.served, 4)
}

// A candidate of the default naming waits for those of a hand-written election, too.
func TestHandWrittenCandidatesAhead(t *testing.T) {
	for _, s := range schemes {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{T: t, srv: zktest.Start(t), scheme: s, leading: map[string]func() bool{}}
			operator, _, err := f.srv.Connect(4 * time.Second)
			require.NoError(t, err)
			_, err = operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			first := f.startOld("old")
			synctest.Wait()
			conn, _, err := f.srv.Connect(4 * time.Second)
			require.NoError(t, err)
			e, err := leaderelection.NewElection(conn, node)
			require.NoError(t, err)
			go e.ElectLeader()
			time.Sleep(5 * time.Second)
			require.Equal(t, leaderelection.Follower, e.Current().Role, s)
			require.Equal(t, first.(*old).own, e.Current().NowFollowing)
			first.quit()
			synctest.Wait()
			require.Equal(t, leaderelection.Leader, e.Current().Role, s)
			require.NoError(t, e.Resign())
			synctest.Wait()
		})
	}
}

// TestMigrationFromZkLock shows that programs that use the client library's lock wait for
// candidates with its names and for a mutex of this library, and that these wait for them.
func TestMigrationFromZkLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		connect := func() *zk.Conn {
			conn, _, err := srv.Connect(4 * time.Second)
			require.NoError(t, err)
			return conn
		}
		join := func() *leaderelection.Election {
			e, err := leaderelection.NewElection(connect(), node, leaderelection.WithCreateNode(),
				leaderelection.WithNaming(leaderelection.ProtectedPrefix("lock-")))
			require.NoError(t, err)
			go e.ElectLeader()
			synctest.Wait()
			return e
		}
		role := func(e *leaderelection.Election) leaderelection.Role {
			synctest.Wait()
			return (<-e.Status()).Role
		}

		first := zk.NewLock(connect(), node, zk.WorldACL(zk.PermAll))
		require.NoError(t, first.Lock())
		second := join()
		require.Equal(t, leaderelection.Follower, role(second))
		third := zk.NewLock(connect(), node, zk.WorldACL(zk.PermAll))
		locked := make(chan error, 1)
		go func() { locked <- third.Lock() }()
		time.Sleep(time.Minute)
		fourth := join()
		require.Equal(t, leaderelection.Follower, role(fourth))

		require.NoError(t, first.Unlock())
		require.Equal(t, leaderelection.Leader, role(second))
		time.Sleep(time.Minute)
		require.Empty(t, locked)

		require.NoError(t, second.Resign())
		require.NoError(t, <-locked)
		time.Sleep(time.Minute)
		require.Empty(t, fourth.Status())

		require.NoError(t, third.Unlock())
		require.Equal(t, leaderelection.Leader, role(fourth))
		require.NoError(t, fourth.Resign())

		mutex, err := lock.NewMutex(connect(), node)
		require.NoError(t, err)
		require.NoError(t, first.Lock())
		_, err = mutex.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, first.Unlock())
		hold, err := mutex.Lock(t.Context())
		require.NoError(t, err)
		go func() { locked <- third.Lock() }()
		time.Sleep(time.Minute)
		require.Empty(t, locked)
		require.NoError(t, hold.Release(t.Context()))
		require.NoError(t, <-locked)
		require.NoError(t, third.Unlock())
	})
}
