package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRegistration_KeepsZnodeUntilClose checks that the znode of a registration exists, with its newest content,
// from Register until Close.
func TestRegistration_KeepsZnodeUntilClose(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, kind := range []Type{Dynamic, Static, Permanent} {
			d := connect(w)
			i := instance("one")
			i.Type = kind
			r, err := d.Register(w.Context(), i)
			require.NoError(w, err)
			require.Equal(w, onePath, r.Path())
			require.Equal(w, Status{State: Registered}, <-r.Status())
			_, stat, err := d.setup.Conn.Get(onePath)
			require.NoError(w, err)
			require.Equal(w, kind == Dynamic, stat.EphemeralOwner == d.setup.Conn.SessionID())

			i.Payload, i.Disabled, i.Registered = json.RawMessage(`{"weight":3}`), true, 0
			require.NoError(w, r.Update(w.Context(), i))
			got, err := d.Instances(w.Context(), "shop")
			require.NoError(w, err)
			i.Registered = 1
			require.Equal(w, []Instance{i}, got)
			require.Equal(w, i, r.Instance())
			i.Name = "other"
			require.ErrorIs(w, r.Update(w.Context(), i), recipes.ErrInvalid)

			require.NoError(w, r.Close())
			require.NoError(w, r.Close())
			i.Name = "shop"
			require.ErrorIs(w, r.Update(w.Context(), i), recipes.ErrClosed)
			for range r.Status() { // read until the channel is closed
			}
			require.Equal(w, "/\n  services container\n    shop container\n", w.Server.Tree())
			require.Empty(w, w.Server.Watches())
			names, err := d.Names(w.Context())
			require.NoError(w, err)
			require.Equal(w, []string{"shop"}, names)
		}
	})
}

// TestRegister_SetsDefaults checks that Register sets the ID, the time and the type of an instance if the caller
// omits them.
func TestRegister_SetsDefaults(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r, err := connect(w).Register(w.Context(), Instance{Name: "shop"})
		require.NoError(w, err)
		i := r.Instance()
		require.Len(w, i.ID, 36)
		require.Equal(w, time.Now().UnixMilli(), i.Registered)
		require.Equal(w, Dynamic, i.Type)
		require.NoError(w, r.Close())
	})
}

// TestRegister_RejectsInvalidParameters checks that Register rejects an instance that this package or Curator
// could not read.
func TestRegister_RejectsInvalidParameters(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		for _, i := range []Instance{
			{},
			{Name: "a/b"},
			{Name: ".."},
			{Name: "shop", ID: "x/y"},
			{Name: "shop", Type: "DYNAMIC_SEQUENTIAL"},
			{Name: "shop", Port: 70000},
			{Name: "shop", Payload: json.RawMessage(`{`)},
			{Name: "shop", Payload: json.RawMessage(`[1,2]`)},
			{Name: "shop", Payload: json.RawMessage(`["x"]`)},
		} {
			_, err := d.Register(w.Context(), i)
			require.ErrorIs(w, err, recipes.ErrInvalid, "%+v", i)
		}
		_, err := d.Instances(w.Context(), "")
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = d.Provider(w.Context(), "shop", WithDownAfter(-1, time.Second))
		require.ErrorIs(w, err, recipes.ErrInvalid)
		require.Empty(w, w.Server.Log().Requests())
	})
}

// TestRegister_RejectsTooLargeInstance checks that Register and Update do not send a request that is too large,
// because the server would close the connection.
// Scenario 37 of docs/traps.md.
func TestRegister_RejectsTooLargeInstance(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		r := register(w, d, "one")
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		for _, size := range []int{0xfffff, 1200 << 10, 3 << 20} {
			large := instance("two")
			large.Payload = []byte(strconv.Quote(strings.Repeat("x", size)))
			_, err := d.Register(ctx, large)
			require.ErrorIs(w, err, recipes.ErrInvalid)
			large.ID = "one"
			require.ErrorIs(w, r.Update(ctx, large), recipes.ErrInvalid)
		}
		require.NoError(w, ctx.Err())
		require.Empty(w, r.Instance().Payload)
	})
}

// TestRegistration_KeepsZnodeWhenConnectionBreaks checks that a break of the connection neither removes the znode
// nor costs a write.
// Scenario 21 of docs/traps.md.
func TestRegistration_KeepsZnodeWhenConnectionBreaks(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		r := register(w, d, "one")
		_, before, err := d.setup.Conn.Get(onePath)
		require.NoError(w, err)
		<-r.Status()
		w.Server.ResetLog()
		w.Server.DropConnections()
		require.Equal(w, Status{State: Unsure}, <-r.Status())
		require.Equal(w, Status{State: Registered}, <-r.Status())
		bubble.Advance(time.Hour)
		log := w.Server.Log().Requests()
		// Allow 12 to 20 reads of each watched znode in an hour, by which the library verifies that
		// the watch exists.
		verifications := log.Count(zktest.OpExists)
		require.LessOrEqual(w, verifications, 21, "%v", log)
		require.LessOrEqual(w, len(log)-verifications, 4, "%v", log)
		require.Zero(w, log.Count(zktest.OpCreate, zktest.OpDelete, zktest.OpSetData), "%v", log)
		_, after, err := d.setup.Conn.Get(onePath)
		require.NoError(w, err)
		require.Equal(w, before, after)
		require.NoError(w, r.Close())
		require.Empty(w, w.Server.Watches())
	})
}

// TestRegister_SucceedsIfCreateOrReplyIsLost checks that Register succeeds if its create or the reply is lost, and
// that Close leaves no second znode behind.
// Scenario 1 of docs/traps.md.
func TestRegister_SucceedsIfCreateOrReplyIsLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, kind := range []Type{Dynamic, Static} {
			for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After} {
				d := connect(w)
				hook(zktest.Match{Op: zktest.OpCreate, Path: onePath, Nth: 1}, zktest.Cut)
				i := instance("one")
				i.Type = kind
				r, err := d.Register(w.Context(), i)
				require.NoError(w, err)
				got, err := d.Instances(w.Context(), "shop")
				require.NoError(w, err)
				require.Equal(w, []Instance{i}, got)
				require.NoError(w, r.Close())
				require.NotContains(w, w.Server.Tree(), "one")
			}
		}
	})
}

// TestUpdate_ReplacesContentOfCreateInFlight checks that the znode does not keep its earlier content if Update is
// called while a create whose reply is lost is in flight.
func TestUpdate_ReplacesContentOfCreateInFlight(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		r := register(w, d, "one")
		i := r.Instance()
		i.Address = "elsewhere"
		updated := make(chan error, 1)
		w.Server.After(zktest.Match{Op: zktest.OpCreate, Path: onePath, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			go func() { updated <- r.Update(w.Context(), i) }()
			time.Sleep(time.Second)
			return zktest.Cut(q)
		})
		require.NoError(w, connect(w).setup.Conn.Delete(onePath, -1))
		bubble.Advance(time.Minute)
		require.NoError(w, <-updated)
		got, err := d.Instances(w.Context(), "shop")
		require.NoError(w, err)
		require.Equal(w, []Instance{i}, got)
		require.NoError(w, r.Close())
	})
}

// TestClose_SucceedsIfDeleteOrReplyIsLost checks that Close succeeds, and leaves no znode behind, if its delete or
// the reply is lost.
// Scenario 5 of docs/traps.md.
func TestClose_SucceedsIfDeleteOrReplyIsLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After} {
			r := register(w, connect(w), "one")
			hook(zktest.Match{Op: zktest.OpDelete, Path: onePath, Nth: 1}, zktest.Cut)
			require.NoError(w, r.Close())
			require.NotContains(w, w.Server.Tree(), "one")
		}
	})
}

// TestClose_DoesNotRepeatDeleteAfterSessionExpiry checks that Close does not repeat a delete that was lost when
// the session expired: the repeated delete would remove the znode that another client has registered in the
// meantime.
// Scenario 19 of docs/traps.md.
func TestClose_DoesNotRepeatDeleteAfterSessionExpiry(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d, other := connect(w), connect(w)
		r := register(w, d, "one")
		registered := startRegister(w, other, instance("one"))
		bubble.Advance(time.Second)
		session := d.setup.Conn.SessionID()
		w.Server.Before(zktest.Match{Op: zktest.OpDelete, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, w.Server.ExpireSession(session))
			time.Sleep(time.Second)
			return zktest.Cut(q)
		})
		require.NoError(w, bubble.Repeated(r.Close))
		otherRegistration := <-registered
		bubble.Advance(time.Minute)
		deletes := w.Server.Log().Filter(func(e zktest.Entry) bool {
			return e.Op == zktest.OpDelete && e.Path == onePath && e.Fate == zktest.Served
		})
		require.Empty(w, deletes)
		require.NoError(w, otherRegistration.Close())
	})
}

// TestRegister_RemovesZnodeCreatedAfterContextIsDone checks that no znode remains if the server creates it after
// the context of Register is done.
// Scenario 6 of docs/traps.md.
func TestRegister_RemovesZnodeCreatedAfterContextIsDone(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, kind := range []Type{Dynamic, Static} {
			d := connect(w)
			require.NoError(w, firstErrorExcept(zk.ErrNodeExists, create(d, base), create(d, shopPath)))
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			defer cancel()
			w.Server.Delay(zktest.ToClient, 700*time.Millisecond, d.setup.Conn.SessionID())
			i := instance("one")
			i.Type = kind
			_, err := d.Register(ctx, i)
			require.ErrorIs(w, err, context.DeadlineExceeded)
			require.Contains(w, w.Server.Tree(), "one")
			w.Server.Heal()
			bubble.Advance(time.Minute)
			require.NotContains(w, w.Server.Tree(), "one")
		}
	})
}

func create(d *Discovery, node string) error {
	_, err := d.setup.Conn.Create(node, nil, 0, d.setup.ACL)
	return err
}

// firstErrorExcept returns the first error in errs that is neither nil nor wraps ignored, or nil if there is none.
func firstErrorExcept(ignored error, errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, ignored) {
			return err
		}
	}
	return nil
}

// TestRegistration_CreatesZnodeInUnannouncedSession checks that a registration creates its znode in a new session
// that the client library starts without reporting the expiry of the previous session.
// Scenario 18 of docs/traps.md.
func TestRegistration_CreatesZnodeInUnannouncedSession(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		r := register(w, d, "one")
		<-r.Status()
		for range 3 {
			old := d.setup.Conn.SessionID()
			w.Server.Refuse(true)
			w.Server.DropConnections()
			require.NoError(w, w.Server.ExpireSession(old))
			require.Equal(w, Unsure, (<-r.Status()).State)
			bubble.Advance(time.Second)
			w.Server.Refuse(false)
			bubble.Advance(10 * time.Second)
			require.NotEqual(w, old, d.setup.Conn.SessionID())
			require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()), w.Server.Tree())
			require.Equal(w, Status{State: Registered}, <-r.Status())
		}
		require.NoError(w, r.Close())
		require.NotContains(w, w.Server.Tree(), "one")
	})
}

// TestStatus_WaitingRegistrationStaysPending checks that a registration that waits for the deletion of another
// client's znode does not become Unsure when the connection breaks.
func TestStatus_WaitingRegistrationStaysPending(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d, other := connect(w), connect(w)
		r := register(w, d, "one")
		registered := startRegister(w, other, instance("one"))
		bubble.Advance(time.Second)
		require.NoError(w, w.Server.ExpireSession(d.setup.Conn.SessionID()))
		bubble.Advance(10 * time.Second)
		otherRegistration := <-registered
		is := <-r.Status()
		require.Equal(w, Pending, is.State)
		require.ErrorIs(w, is.Cause, recipes.ErrTaken)
		w.Server.Refuse(true)
		w.Server.DropConnections(d.setup.Conn.SessionID())
		bubble.Advance(time.Second)
		select {
		case is := <-r.Status():
			require.Equal(w, Pending, is.State)
		default:
		}
		w.Server.Refuse(false)
		bubble.Advance(10 * time.Second)
		require.NoError(w, otherRegistration.Close())
		bubble.Advance(time.Second)
		require.Equal(w, Status{State: Registered}, <-r.Status())
	})
}

// TestRegister_WaitsForExpiryOfOtherSession checks that Register neither adopts nor deletes the znode of a process
// that has crashed, and registers the instance after the session of the process has expired (KAFKA-1387).
// Scenario 19 of docs/traps.md.
func TestRegister_WaitsForExpiryOfOtherSession(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		former := connect(w)
		require.NoError(w, connection.MakeZnode(w.Context(), former.setup.Conn, shopPath, former.setup.ACL, true))
		_, err := former.setup.Conn.Create(onePath, []byte("{}"), zk.FlagEphemeral, former.setup.ACL)
		require.NoError(w, err)

		d := connect(w)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err = d.Register(ctx, instance("one"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.ErrorIs(w, err, recipes.ErrTaken)
		require.True(w, isOwned(w, "one", former.setup.Conn.SessionID()))
		require.Zero(w, w.Server.Log().Count(zktest.OpDelete))

		time.AfterFunc(2*time.Second, func() { _ = w.Server.ExpireSession(former.setup.Conn.SessionID()) })
		r := register(w, d, "one")
		require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()), w.Server.Tree())
		require.Zero(w, w.Server.Log().Count(zktest.OpDelete))
		bubble.Advance(time.Hour)
		require.Equal(w, Status{State: Registered}, <-r.Status())
		require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()), w.Server.Tree())
		require.NoError(w, r.Close())
	})
}

// TestRegistration_WaitsForExpiryOfEarlierSession checks that a registration neither adopts nor deletes the znode
// of its own earlier session, which the connection has lost and the servers have not expired yet: a delayed delete
// could remove a znode that another process has created in the meantime (KAFKA-1387).
// Scenario 19 of docs/traps.md.
func TestRegistration_WaitsForExpiryOfEarlierSession(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d, loseSession := connectLosable(w)
		r := register(w, d, "one")
		earlier := d.setup.Conn.SessionID()
		loseSession()
		require.NotEqual(w, earlier, d.setup.Conn.SessionID())
		limited, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		i := r.Instance()
		i.Port = 81
		require.ErrorIs(w, r.Update(limited, i), context.DeadlineExceeded)
		require.ErrorIs(w, (<-r.Status()).Cause, recipes.ErrTaken)
		require.True(w, isOwned(w, "one", earlier), w.Server.Tree())

		require.NoError(w, w.Server.ExpireSession(earlier))
		require.NoError(w, r.Update(w.Context(), i))
		require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()), w.Server.Tree())
		require.Zero(w, w.Server.Log().Count(zktest.OpDelete))
		require.NoError(w, r.Close())
	})
}

// TestClose_WaitsForExpiryOfEarlierSession checks that Close does not delete the znode of an earlier session that
// the connection has lost, and succeeds after the servers have deleted the znode.
// Scenario 19 of docs/traps.md.
func TestClose_WaitsForExpiryOfEarlierSession(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d, loseSession := connectLosable(w)
		r := register(w, d, "one")
		earlier := d.setup.Conn.SessionID()
		loseSession()
		require.ErrorIs(w, r.Close(), recipes.ErrUnconfirmed)
		require.True(w, isOwned(w, "one", earlier), w.Server.Tree())
		require.NoError(w, w.Server.ExpireSession(earlier))
		require.NoError(w, r.Close())
		require.Zero(w, w.Server.Log().Count(zktest.OpDelete))
	})
}

// TestRegister_WaitsUntilSameIDIsClosed checks that a second registration with the same ID on the same connection
// waits until the first registration is closed.
func TestRegister_WaitsUntilSameIDIsClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		r := register(w, d, "one")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := d.Register(ctx, instance("one"))
		require.ErrorIs(w, err, recipes.ErrTaken)
		second := make(chan *Registration)
		go func() { second <- register(w, d, "one") }()
		synctest.Wait()
		require.NoError(w, r.Close())
		r = <-second
		require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()))
		require.NoError(w, r.Close())
	})
}

// TestRegistration_RecreatesDeletedZnodeWithPauses checks that a registration creates its znode again whenever
// another client deletes it, with a pause after the first time.
// Scenario 39 of docs/traps.md.
func TestRegistration_RecreatesDeletedZnodeWithPauses(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d, other := connect(w), connect(w)
		r := register(w, d, "one")
		for range 100 {
			err := other.setup.Conn.Delete(onePath, -1)
			require.NoError(w, firstErrorExcept(zk.ErrNoNode, err))
			bubble.Advance(100 * time.Millisecond)
		}
		created := w.Server.Log().Filter(func(e zktest.Entry) bool { return e.Created == onePath })
		require.Less(w, len(created), 30, "creates have pauses")
		bubble.Advance(time.Minute)
		require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()))
		// Delete the node of the service as well.
		require.NoError(w, other.setup.Conn.Delete(onePath, -1))
		require.NoError(w, firstErrorExcept(zk.ErrNotEmpty, other.setup.Conn.Delete(shopPath, -1)))
		bubble.Advance(time.Minute)
		require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()))
		require.NoError(w, r.Close())
	})
}

// TestRegister_ReturnsErrPermission checks that Register returns ErrPermission, instead of retrying without an
// end, if the client is not permitted to create the znode.
func TestRegister_ReturnsErrPermission(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		_, err := d.setup.Conn.Create(base, nil, 0, []zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}})
		require.NoError(w, err)
		_, err = d.Register(w.Context(), instance("one"))
		require.ErrorIs(w, err, recipes.ErrPermission)
	})
}

// TestRegistration_EndsWhenConnectionIsClosed checks that registrations and providers end when the connection is
// closed.
func TestRegistration_EndsWhenConnectionIsClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		r, p := register(w, d, "one"), newProvider(w, d)
		lists := p.Watch(w.Context())
		bubble.Advance(time.Second)
		d.setup.Conn.Close()
		bubble.Advance(time.Minute)
		last := <-r.Status()
		require.ErrorIs(w, last.Err, recipes.ErrConnClosed)
		_, open := <-r.Status()
		require.False(w, open)
		require.ErrorIs(w, r.Close(), recipes.ErrConnClosed)
		require.ErrorIs(w, (<-lists).Err, recipes.ErrConnClosed)
		_, open = <-lists
		require.False(w, open)
		_, err := p.Choose()
		require.ErrorIs(w, err, recipes.ErrConnClosed)
		require.NoError(w, p.Close())
	})
}
