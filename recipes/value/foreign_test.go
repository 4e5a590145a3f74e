package value

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestCounter_RecoversFromForeignChanges checks that, whatever another program does to the znode of a counter,
// changes are either applied or return an error that names the znode and the remedy. After the znode is corrected,
// reads, changes and Watch must continue. Counters at other paths must continue in any case.
func TestCounter_RecoversFromForeignChanges(t *testing.T) {
	const five = "\x00\x00\x00\x00\x00\x00\x00\x05"
	set := func(data string) func(h *bubble.Test, foreign *zk.Conn) {
		return func(h *bubble.Test, foreign *zk.Conn) {
			_, err := foreign.Set(node, []byte(data), -1)
			require.NoError(h, err)
		}
	}
	setACL := func(perms int32) func(h *bubble.Test, foreign *zk.Conn) {
		return func(h *bubble.Test, foreign *zk.Conn) {
			_, err := foreign.SetACL(node, zk.WorldACL(perms), -1)
			require.NoError(h, err)
		}
	}
	remove := func(h *bubble.Test, foreign *zk.Conn) {
		children, _, err := foreign.Children(node)
		require.NoError(h, err)
		for _, name := range children {
			require.NoError(h, foreign.Delete(node+"/"+name, -1))
		}
		require.NoError(h, foreign.Delete(node, -1))
	}
	createAgain := func(data string, flags int32, acl []zk.ACL) func(h *bubble.Test, foreign *zk.Conn) {
		return func(h *bubble.Test, foreign *zk.Conn) {
			remove(h, foreign)
			_, err := foreign.Create(node, []byte(data), flags, acl)
			require.NoError(h, err)
		}
	}
	removeRecords := func(edit func(h *bubble.Test, foreign *zk.Conn, record string)) func(h *bubble.Test, foreign *zk.Conn) {
		return func(h *bubble.Test, foreign *zk.Conn) {
			children, _, err := foreign.Children(node)
			require.NoError(h, err)
			require.NotEmpty(h, children)
			for _, name := range children {
				edit(h, foreign, node+"/"+name)
			}
		}
	}
	large := string(make([]byte, 100<<10))
	for name, c := range map[string]struct {
		change  func(h *bubble.Test, foreign *zk.Conn)
		addErr  error  // the error of additions; nil if they succeed
		text    string // part of the text of the error
		getErr  error
		correct func(h *bubble.Test, foreign *zk.Conn)
		set     bool // reports that a call of Set corrects the data too
		next    int64
	}{
		"as documented":    {change: set(five), next: 6},
		"no data":          {change: set(""), next: 1},
		"garbage":          {change: set("garbage"), addErr: recipes.ErrFormat, getErr: recipes.ErrFormat, text: "7 bytes, want 8", correct: set(five), set: true, next: 6},
		"of another codec": {change: set(`{"n":5}  `), addErr: recipes.ErrFormat, getErr: recipes.ErrFormat, text: "replace the data with Set", correct: set(five), set: true, next: 6},
		"too large":        {change: set(large), addErr: recipes.ErrTooLarge, getErr: recipes.ErrTooLarge, text: "zk.WithMaxBufferSize", correct: set(five), set: true, next: 6},
		"the greatest":     {change: set("\x7f\xff\xff\xff\xff\xff\xff\xff"), addErr: ErrOverflow, text: "does not fit", correct: set(five), set: true, next: 6},
		"no right to read": {change: setACL(zk.PermAll &^ zk.PermRead), getErr: recipes.ErrPermission, correct: setACL(zk.PermAll), next: 3},
		"no right to read, changed": {
			change: func(h *bubble.Test, foreign *zk.Conn) {
				setACL(zk.PermAll&^zk.PermRead)(h, foreign)
				set(five)(h, foreign)
			},
			addErr: recipes.ErrPermission, getErr: recipes.ErrPermission, text: "NOAUTH", correct: setACL(zk.PermAll), next: 6,
		},
		"no right to write":  {change: setACL(zk.PermAll &^ zk.PermWrite), addErr: recipes.ErrPermission, text: "NOAUTH", correct: setACL(zk.PermAll), next: 3},
		"no right to create": {change: setACL(zk.PermAll &^ zk.PermCreate), correct: setACL(zk.PermAll), next: 3},
		"is deleted":         {change: remove, next: 1},
		"is created again":   {change: createAgain(five, 0, openACL), next: 6},
		"is created again with garbage": {
			change: createAgain("x", 0, openACL), addErr: recipes.ErrFormat, getErr: recipes.ErrFormat, text: "replace the data with Set", correct: set(five), set: true, next: 6,
		},
		"is created again without any right": {
			change: createAgain(five, 0, zk.WorldACL(zk.PermAdmin)), addErr: recipes.ErrPermission, getErr: recipes.ErrPermission, text: "NOAUTH",
			correct: setACL(zk.PermAll), next: 6,
		},
		"is ephemeral": {
			change: createAgain(five, zk.FlagEphemeral, openACL), addErr: zk.ErrNoChildrenForEphemerals, text: "ephemeral",
			correct: createAgain(five, 0, openACL), next: 6,
		},
		"records are deleted": {
			change: removeRecords(func(h *bubble.Test, foreign *zk.Conn, record string) { require.NoError(h, foreign.Delete(record, -1)) }), next: 3,
		},
		"records are changed": {
			change: removeRecords(func(h *bubble.Test, foreign *zk.Conn, record string) {
				_, err := foreign.Set(record, []byte(large), -1)
				require.NoError(h, err)
			}), next: 3,
		},
		"other children": {change: func(h *bubble.Test, foreign *zk.Conn) { create(h, foreign, node+"/_r_x", large) }, next: 3},
	} {
		for _, by := range []string{"", " by Set"} {
			if by != "" && !c.set {
				continue
			}
			t.Run(name+by, func(t *testing.T) {
				bubble.Run(t, func(h *bubble.Test) {
					foreign := h.Connect(zk.WithMaxBufferSize(0))
					conn := h.Connect()
					a, b := counterOn(h, conn), newCounter(h)
					other, err := NewCounter(conn, "/app/other")
					require.NoError(h, err)
					changes := a.value.Watch(h.Context())
					addTo(h, a, 1)
					addTo(h, b, 1)
					synctest.Wait() // wait until Watch has delivered the value and has set its watch
					c.change(h, foreign)
					fresh := newCounter(h)
					for _, x := range []*Counter{fresh, a, b} {
						_, err := x.Get(h.Context())
						require.ErrorIs(h, err, c.getErr)
						if c.addErr == nil {
							continue
						}
						_, err = x.Add(h.Context(), 1)
						require.ErrorIs(h, err, c.addErr)
						require.ErrorContains(h, err, node)
						require.ErrorContains(h, err, c.text)
					}
					require.Equal(h, int64(1), addTo(h, other, 1))
					next := c.next
					switch {
					case by != "":
						require.NoError(h, b.Set(h.Context(), 10))
						next = 11
					case c.correct != nil:
						time.Sleep(time.Minute)
						c.correct(h, foreign)
					}
					for _, x := range []*Counter{fresh, a, b} {
						require.Equal(h, next, addTo(h, x, 1))
						next++
					}
					delay := 15 * time.Second // the time after which the znode is read again
					if errors.Is(c.getErr, recipes.ErrPermission) {
						delay = watch.MaxDelay // servers send no event to a client that may not read the znode
					}
					time.Sleep(delay)
					synctest.Wait()
					last := <-changes
					require.NoError(h, last.Cause)
					require.Equal(h, next-1, last.Value)
					require.Equal(h, int64(2), addTo(h, other, 1))
				})
			})
		}
	}
}
