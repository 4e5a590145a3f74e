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

// namingScheme describes how a hand-written election names its candidates.
type namingScheme struct {
	prefix    string
	protected bool // whether CreateProtectedEphemeralSequential creates the znodes
}

// schemes contains the naming schemes of public programs.
var schemes = []namingScheme{
	{prefix: ""}, // the scheme of Vitess
	{prefix: "0"},
	{prefix: "n_"},
	{prefix: "node_"},
	{prefix: "c_"},
	{prefix: "zkonce-"},
	{prefix: "lock-"},
	{prefix: "le_"},
	{prefix: "guid-n_"},
	{prefix: "guid-n_", protected: true},
	{prefix: "n_", protected: true},
}

// option returns the option by which a candidate uses the names of the scheme.
func (s namingScheme) option() leaderelection.Option {
	if s.protected {
		return leaderelection.WithNamePrefix("_c_*-" + s.prefix)
	}
	return leaderelection.WithNamePrefix(s.prefix)
}

func (s namingScheme) String() string {
	if s.protected {
		return "_c_<guid>-" + s.prefix + "<number>"
	}
	return s.prefix + "<number>"
}

// candidates returns the children that a program with the scheme considers candidates, in the order
// of succession.
func (s namingScheme) candidates(children []string) (names []string) {
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
		slices.Sort(names) // sort by name, as many programs do
		return names
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return names
}

// fleet contains the instances of one program, some with a hand-written election and some with this library.
type fleet struct {
	*testing.T
	srv    *zktest.Server
	scheme namingScheme

	mu      sync.Mutex
	leading map[string]func() bool // functions that report whether an instance is still the leader, by the name of the instance
	elected int                    // number of leaders so far
}

// addLeader records that an instance is the leader while isLeader returns true, and fails the
// test if another instance is the leader.
func (f *fleet) addLeader(instance string, isLeader func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, still := range f.leading {
		if other != instance && still() {
			f.Errorf("%s and %s are leaders at the same time", other, instance)
		}
	}
	f.leading[instance] = isLeader
	f.elected++
}

func (f *fleet) leaders() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for instance, isLeader := range f.leading {
		if isLeader() {
			names = append(names, instance)
		}
	}
	return names
}

// instance is a running instance of the program, of the hand-written version or of the
// version that uses this library.
type instance interface {
	quit()
	crash()
}

// handWritten is an instance of the version with a hand-written election.
type handWritten struct {
	fleet  *fleet
	id     string
	conn   *zk.Conn
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	znode  string
}

func (f *fleet) startHandWritten(id string) instance {
	conn, _, err := f.srv.Connect(4 * time.Second)
	require.NoError(f, err)
	o := &handWritten{fleet: f, id: id, conn: conn, done: make(chan struct{})}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	go o.run()
	return o
}

// run joins the election, follows its predecessor, and leads until ctx is done.
func (o *handWritten) run() {
	defer close(o.done)
	var err error
	if scheme := o.fleet.scheme; scheme.protected {
		o.znode, err = o.conn.CreateProtectedEphemeralSequential(node+"/"+scheme.prefix, []byte(o.id), openACL)
	} else {
		o.znode, err = o.conn.Create(node+"/"+scheme.prefix, []byte(o.id), zk.FlagEphemeral|zk.FlagSequence, openACL)
	}
	if err != nil {
		return
	}
	for {
		children, _, err := o.conn.Children(node)
		if err != nil {
			return
		}
		names := o.fleet.scheme.candidates(children)
		i := slices.Index(names, path.Base(o.znode))
		switch {
		case i < 0:
			return
		case i == 0:
			o.fleet.addLeader(o.id, func() bool { return o.ctx.Err() == nil })
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
			// A hand-written candidate takes any event for the deletion of its predecessor, so no other
			// event may occur.
			if e.Type != zk.EventNodeDeleted {
				o.fleet.Errorf("%s: %v on its predecessor", o.id, e.Type)
			}
		case <-o.ctx.Done():
			return
		}
	}
}

func (o *handWritten) quit() {
	o.cancel()
	<-o.done
	// The version 0 makes Delete fail if another client has written to the znode.
	if err := o.conn.Delete(o.znode, 0); err != nil {
		o.fleet.Errorf("%s: delete: %v", o.id, err)
	}
	synctest.Wait()
	o.conn.Close()
}

func (o *handWritten) crash() {
	o.cancel()
	<-o.done
	require.NoError(o.fleet, o.fleet.srv.ExpireSession(o.conn.SessionID()))
	synctest.Wait()
	o.conn.Close()
}

// migratedInstance is an instance of the version that uses this library.
type migratedInstance struct {
	fleet    *fleet
	conn     *zk.Conn
	election *leaderelection.Election
}

func (f *fleet) startMigrated(id string) instance {
	conn, _, err := f.srv.Connect(4 * time.Second)
	require.NoError(f, err)
	e, err := leaderelection.NewElection(conn, node, f.scheme.option(), leaderelection.WithName(id))
	require.NoError(f, err)
	go func() {
		if err := e.ElectLeader(); err != nil {
			f.Logf("%s: %v", id, err) // after crash the error is expected
		}
	}()
	go func() {
		for s := range e.Status() {
			if s.Role == leaderelection.Leader {
				f.addLeader(id, func() bool { return s.Leadership.Err() == nil })
			}
		}
	}()
	return &migratedInstance{f, conn, e}
}

func (m *migratedInstance) quit() {
	require.NoError(m.fleet, m.election.Resign())
	synctest.Wait()
	m.conn.Close()
}

// crash cuts the instance off until its session has expired.
func (m *migratedInstance) crash() {
	id := m.conn.SessionID()
	m.fleet.srv.Blackhole(zktest.BothWays, id)
	time.Sleep(8 * time.Second)
	m.fleet.srv.Heal(id)
	time.Sleep(2 * time.Second)
	_ = m.election.Resign()
	m.conn.Close()
}

// TestMigration_RollingUpgradeNeverHasTwoLeaders replaces three instances one after another by the new version,
// and then by the old version again. The instances end in all ways in which an instance can end. There must
// never be two leaders, and after five seconds there must be one.
func TestMigration_RollingUpgradeNeverHasTwoLeaders(t *testing.T) {
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

func rollingUpgrade(t *testing.T, s namingScheme, leaderFirst, crash bool) {
	f := &fleet{T: t, srv: zktest.Start(t), scheme: s, leading: map[string]func() bool{}}
	operator, _, err := f.srv.Connect(4 * time.Second)
	require.NoError(t, err)
	_, err = operator.Create(node, nil, 0, openACL)
	require.NoError(t, err)
	// Create a persistent child that is named like a candidate. Candidates of this library ignore it.
	_, err = operator.Create(node+"/"+s.prefix, nil, zk.FlagSequence, openACL)
	require.NoError(t, err)
	if !s.protected {
		// A hand-written candidate without protected names would take the child for a candidate and wait for it, so
		// delete the child.
		require.NoError(t, operator.Delete(node+"/"+s.prefix+"0000000000", -1))
	}

	var running []instance
	settle := func() {
		t.Helper()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		leaders := f.leaders()
		require.Len(t, leaders, 1)
		all, err := leaderelection.Candidates(t.Context(), operator, node)
		require.NoError(t, err)
		require.Len(t, all, len(running))
		require.Equal(t, leaders[0], all[0].Name)
	}
	replace := func(start func(string) instance, version string) {
		for i := range running {
			at := 0 // the leader is the first instance
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
		running = append(running, f.startHandWritten(fmt.Sprint("old", i)))
		synctest.Wait()
	}
	settle()
	replace(f.startMigrated, "new")
	replace(f.startMigrated, "newer")
	replace(f.startHandWritten, "older")
	for _, r := range running {
		r.quit()
	}
	require.GreaterOrEqual(t, f.elected, 4)
}

// TestMigration_DefaultNamesFollowHandWrittenCandidates checks that a candidate with the default names waits
// for earlier hand-written candidates.
func TestMigration_DefaultNamesFollowHandWrittenCandidates(t *testing.T) {
	for _, s := range schemes {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{T: t, srv: zktest.Start(t), scheme: s, leading: map[string]func() bool{}}
			operator, _, err := f.srv.Connect(4 * time.Second)
			require.NoError(t, err)
			_, err = operator.Create(node, nil, 0, openACL)
			require.NoError(t, err)
			first := f.startHandWritten("old")
			synctest.Wait()
			conn, _, err := f.srv.Connect(4 * time.Second)
			require.NoError(t, err)
			e, err := leaderelection.NewElection(conn, node)
			require.NoError(t, err)
			go e.ElectLeader()
			time.Sleep(5 * time.Second)
			require.Equal(t, leaderelection.Follower, e.Current().Role, s)
			require.Equal(t, first.(*handWritten).znode, e.Current().NowFollowing)
			first.quit()
			synctest.Wait()
			require.Equal(t, leaderelection.Leader, e.Current().Role, s)
			require.NoError(t, e.Resign())
			synctest.Wait()
		})
	}
}

// TestMigration_ExcludesHolderOfZkLock checks that holders of zk.Lock, of a mutex of this library and
// candidates of this library at the same path wait for each other.
func TestMigration_ExcludesHolderOfZkLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		connect := func() *zk.Conn {
			conn, _, err := srv.Connect(4 * time.Second)
			require.NoError(t, err)
			return conn
		}
		join := func() *leaderelection.Election {
			e, err := leaderelection.NewElection(connect(), node, leaderelection.WithCreateNode(),
				leaderelection.WithNamePrefix("_c_*-lock-"))
			require.NoError(t, err)
			go e.ElectLeader()
			synctest.Wait()
			return e
		}
		role := func(e *leaderelection.Election) leaderelection.Role {
			synctest.Wait()
			return (<-e.Status()).Role
		}

		first := zk.NewLock(connect(), node, openACL)
		require.NoError(t, first.Lock())
		second := join()
		require.Equal(t, leaderelection.Follower, role(second))
		third := zk.NewLock(connect(), node, openACL)
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
		require.True(t, (<-fourth.Status()).Next)
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
		require.NoError(t, hold.Release())
		require.NoError(t, <-locked)
		require.NoError(t, third.Unlock())
	})
}
