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

// TestRegister_UpdateAndClose checks that the znode exists, with its newest content, from Register until Close.
func TestRegister_UpdateAndClose(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, kind := range []Type{Dynamic, Static, Permanent} {
			d := connect(w)
			i := instance("one")
			i.Type = kind
			r, err := d.Register(w.Context(), i)
			require.NoError(w, err)
			require.Equal(w, one, r.Path())
			require.Equal(w, Status{State: Registered}, <-r.Status())
			_, stat, err := d.setup.Conn.Get(one)
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

// TestRegister_SetsDefaults checks that the ID, the time and the type of an instance are set when the caller
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

// TestRegister_InvalidParameters checks that an instance that this package or Curator could not read is rejected.
func TestRegister_InvalidParameters(t *testing.T) {
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

// A server closes the connection when it receives a request that is too large. No such request may be sent.
func TestTrap37_TooLarge(t *testing.T) {
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

// TestTrap21_KeptWhenTheConnectionBreaks checks that a break of the connection neither makes the znode
// disappear nor costs a write.
func TestTrap21_KeptWhenTheConnectionBreaks(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		r := register(w, d, "one")
		_, before, err := d.setup.Conn.Get(one)
		require.NoError(w, err)
		<-r.Status()
		w.Server.ResetLog()
		w.Server.DropConnections()
		require.Equal(w, Status{State: Unsure}, <-r.Status())
		require.Equal(w, Status{State: Registered}, <-r.Status())
		bubble.Advance(time.Hour)
		log := w.Server.Log().Requests()
		// Watched znodes are read 12 to 20 times an hour to verify the watch.
		verifications := log.Count(zktest.OpExists)
		require.LessOrEqual(w, verifications, 21, "%v", log)
		require.LessOrEqual(w, len(log)-verifications, 4, "%v", log)
		require.Zero(w, log.Count(zktest.OpCreate, zktest.OpDelete, zktest.OpSetData), "%v", log)
		_, after, err := d.setup.Conn.Get(one)
		require.NoError(w, err)
		require.Equal(w, before, after)
		require.NoError(w, r.Close())
		require.Empty(w, w.Server.Watches())
	})
}

// TestTrap01_CreateReplyOrRequestLost checks that a lost request or reply does not make Register fail, and
// does not leave a znode behind.
func TestTrap01_CreateReplyOrRequestLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, kind := range []Type{Dynamic, Static} {
			for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After} {
				d := connect(w)
				hook(zktest.Match{Op: zktest.OpCreate, Path: one, Nth: 1}, zktest.Cut)
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

// The content is updated while a create is in flight whose reply is lost. The znode must not keep the earlier content.
func TestUpdate_WhileACreateIsInFlight(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		r := register(w, d, "one")
		i := r.Instance()
		i.Address = "elsewhere"
		updated := make(chan error, 1)
		w.Server.After(zktest.Match{Op: zktest.OpCreate, Path: one, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			go func() { updated <- r.Update(w.Context(), i) }()
			time.Sleep(time.Second)
			return zktest.Cut(q)
		})
		require.NoError(w, connect(w).setup.Conn.Delete(one, -1))
		bubble.Advance(time.Minute)
		require.NoError(w, <-updated)
		got, err := d.Instances(w.Context(), "shop")
		require.NoError(w, err)
		require.Equal(w, []Instance{i}, got)
		require.NoError(w, r.Close())
	})
}

// TestTrap05_DeleteReplyOrRequestLost checks that a lost request or reply does not make Close fail, and does
// not leave the znode behind.
func TestTrap05_DeleteReplyOrRequestLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After} {
			r := register(w, connect(w), "one")
			hook(zktest.Match{Op: zktest.OpDelete, Path: one, Nth: 1}, zktest.Cut)
			require.NoError(w, r.Close())
			require.NotContains(w, w.Server.Tree(), "one")
		}
	})
}

// TestTrap19_ClosedWhileTheSessionExpires checks that a delete that is lost when the session expires is not
// sent again, which would delete the znode that another client has registered in the meantime.
func TestTrap19_ClosedWhileTheSessionExpires(t *testing.T) {
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
		deletes := w.Server.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpDelete && e.Path == one && e.Fate == zktest.Served })
		require.Empty(w, deletes)
		require.NoError(w, otherRegistration.Close())
	})
}

// TestTrap06_ContextIsDoneFirst checks that a znode that is created after the context is done does not remain.
func TestTrap06_ContextIsDoneFirst(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, kind := range []Type{Dynamic, Static} {
			d := connect(w)
			require.NoError(w, firstErrorExcept(zk.ErrNodeExists, create(d, base), create(d, shop)))
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

// firstErrorExcept returns the first error in errs that is neither nil nor ignored. It returns nil if there
// is none.
func firstErrorExcept(ignored error, errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, ignored) {
			return err
		}
	}
	return nil
}

// TestTrap18_NewSessionWithoutNotification checks that the znode is created in a new session whose
// predecessor has expired without a notification.
func TestTrap18_NewSessionWithoutNotification(t *testing.T) {
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

// TestStatus_WaitingRegistrationStaysPending checks that a registration that waits for the znode of another
// client does not become Unsure when the connection breaks.
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

// TestTrap19_ZnodeOfAnotherSession checks that the znode of a process that has crashed is neither adopted nor
// deleted, and that the instance is registered after its expiry (KAFKA-1387).
func TestTrap19_ZnodeOfAnotherSession(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		former := connect(w)
		require.NoError(w, connection.MakeZnode(w.Context(), former.setup.Conn, shop, former.setup.ACL, true))
		_, err := former.setup.Conn.Create(one, []byte("{}"), zk.FlagEphemeral, former.setup.ACL)
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

// KAFKA-1387: the connection has lost its session, and the servers have not expired it yet. The znode of that
// session must not be taken for the registration, and must not be deleted: a delayed request could delete a
// znode that another process has created in the meantime.
func TestTrap19_WaitsForTheExpiryOfAnEarlierSession(t *testing.T) {
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

// TestTrap19_CloseWaitsForTheExpiryOfAnEarlierSession checks that Close does not delete the znode of a
// session that the connection has lost, and returns after the servers have deleted it.
func TestTrap19_CloseWaitsForTheExpiryOfAnEarlierSession(t *testing.T) {
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

// TestRegister_TwiceOnOneConnection checks that a second registration with the same ID on the same connection
// waits until the first is closed.
func TestRegister_TwiceOnOneConnection(t *testing.T) {
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

// TestTrap39_DeletedRepeatedly checks that a znode that another client deletes is created again, with a pause
// after the first time.
func TestTrap39_DeletedRepeatedly(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d, other := connect(w), connect(w)
		r := register(w, d, "one")
		for range 100 {
			err := other.setup.Conn.Delete(one, -1)
			require.NoError(w, firstErrorExcept(zk.ErrNoNode, err))
			bubble.Advance(100 * time.Millisecond)
		}
		created := w.Server.Log().Filter(func(e zktest.Entry) bool { return e.Created == one })
		require.Less(w, len(created), 30, "creates have pauses")
		bubble.Advance(time.Minute)
		require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()))
		// Delete the node of the service as well.
		require.NoError(w, other.setup.Conn.Delete(one, -1))
		require.NoError(w, firstErrorExcept(zk.ErrNotEmpty, other.setup.Conn.Delete(shop, -1)))
		bubble.Advance(time.Minute)
		require.True(w, isOwned(w, "one", d.setup.Conn.SessionID()))
		require.NoError(w, r.Close())
	})
}

// TestRegister_WithoutPermission checks that Register returns ErrPermission instead of retrying without an end.
func TestRegister_WithoutPermission(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		_, err := d.setup.Conn.Create(base, nil, 0, []zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}})
		require.NoError(w, err)
		_, err = d.Register(w.Context(), instance("one"))
		require.ErrorIs(w, err, recipes.ErrPermission)
	})
}

// TestRegistration_ConnectionClosed checks that registrations and providers end when the connection is closed.
func TestRegistration_ConnectionClosed(t *testing.T) {
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
