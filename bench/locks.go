package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// contend of the floor is what nobody can do without who waits in line: create an
// ephemeral sequential znode, list the line, watch the one ahead by reading it,
// wait for its event, delete the own znode. For the first in line that is three
// requests one after another, for others four and the event. The floor does not
// list again when the one ahead has gone: it takes for granted that nobody leaves
// but from the front, that every reply arrives and that sessions live, so it
// reads nothing of its own znode, and it knows no tokens. It is a lock all the
// same for as long as that holds, which is checked like everybody's.
func (f *floor) contend(n int, dir string, s spell) (contended, error) {
	return contendWith(n, s, func(session int) (func() (func() error, error), error) {
		conn := f.conn(session)
		return func() (func() error, error) {
			own, err := enter(conn, dir)
			if err != nil {
				return nil, err
			}
			return func() error { return conn.Delete(own, -1) }, floorTurn(conn, dir, path.Base(own))
		}, nil
	})
}

// floorTurn waits until nobody stands before own.
func floorTurn(conn *zk.Conn, dir, own string) error {
	names, _, err := conn.Children(dir)
	if err != nil {
		return err
	}
	ahead := ""
	for _, name := range names {
		if name < own && name > ahead { // all have the same prefix
			ahead = name
		}
	}
	if ahead == "" {
		return nil
	}
	_, _, watch, err := conn.GetW(dir + "/" + ahead)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	if event := <-watch; event.Type != zk.EventNodeDeleted {
		return fmt.Errorf("waiting for %s: %v", strings.TrimPrefix(ahead, dir), event)
	}
	return nil
}

func (l *library) contend(n int, dir string, s spell) (contended, error) {
	ctx := context.Background()
	return contendWith(n, s, func(session int) (func() (func() error, error), error) {
		m, err := lock.NewMutex(l.conn(session), dir, recipes.WithSessionTimeout(sessionTimeout))
		return func() (func() error, error) {
			hold, err := m.Lock(ctx)
			if err != nil {
				return nil, err
			}
			if hold.Token() == 0 {
				return nil, errors.New("a hold has no token")
			}
			return func() error { return hold.Release(ctx) }, nil
		}, err
	})
}

func (z *zkLock) contend(n int, dir string, s spell) (contended, error) {
	return contendWith(n, s, func(session int) (func() (func() error, error), error) {
		l := zk.NewLock(z.conn(session), dir, zk.WorldACL(zk.PermAll))
		return func() (func() error, error) { return l.Unlock, l.Lock() }, nil
	})
}

func (p *peer) contend(n int, dir string, s spell) (contended, error) {
	values, err := p.askAll("contend", n, dir, s.lead.Nanoseconds(), s.length.Nanoseconds())
	if err != nil {
		return contended{}, err
	}
	cycles := make([]cycle, 0, len(values)/3)
	if len(values)%3 != 1 {
		return contended{}, fmt.Errorf("%s: contend: %d numbers", p.title, len(values))
	}
	for at := values[1:]; len(at) > 0; at = at[3:] {
		cycles = append(cycles, cycle{at[0], at[1], at[2]})
	}
	return outcome(cycles, values[0], s)
}
