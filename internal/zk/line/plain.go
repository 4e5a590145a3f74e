package line

import (
	"bytes"
	"context"
	"path"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// The znodes of a plain naming have no GUID in their names (Prefix). After a create
// whose reply was lost, the znode that it may have left can only be recognized by
// its owner, which is the session of now, and by its data. Other contenders on the
// same connection have such znodes, too. So all contenders of one connection in one
// line register their znodes, and neither creates nor searches overlap: a search
// takes what it finds for its own contender unless it is registered for another one.

// plainLine is what the contenders on one connection in one line share.
type plainLine struct {
	users int           // contenders; protected by plainLinesMu
	turn  chan struct{} // capacity 1: holds an element during a create or a search
	owner map[string]*place
}

type plainLineOf struct {
	conn *zk.Conn
	dir  string
}

var (
	plainLinesMu sync.Mutex
	plainLines   = map[plainLineOf]*plainLine{}
)

// joinPlain has the contender take part in the registration, if its names are plain.
// The returned function ends that and must be called once nothing of the contender is left
// or can be done about it.
func (p *place) joinPlain() (leave func()) {
	if _, ok := p.Naming.plain(); !ok {
		return func() {}
	}
	of := plainLineOf{p.Conn, p.Dir}
	plainLinesMu.Lock()
	defer plainLinesMu.Unlock()
	l := plainLines[of]
	if l == nil {
		l = &plainLine{turn: make(chan struct{}, 1), owner: map[string]*place{}}
		plainLines[of] = l
	}
	l.users++
	p.plain = l
	return func() {
		l.turn <- struct{}{}
		for name, owner := range l.owner {
			if owner == p {
				delete(l.owner, name)
			}
		}
		<-l.turn
		plainLinesMu.Lock()
		defer plainLinesMu.Unlock()
		if l.users--; l.users == 0 {
			delete(plainLines, of)
		}
	}
}

// createPlain creates a znode and registers it.
func (p *place) createPlain(prefix string) (string, error) {
	p.plain.turn <- struct{}{}
	defer func() { <-p.plain.turn }()
	created, err := p.Conn.Create(p.Dir+"/"+prefix, p.Data, zk.FlagEphemeral|zk.FlagSequence, p.ACL)
	if err == nil {
		p.plain.owner[path.Base(created)] = p
	}
	return created, err
}

// searchPlain returns the znodes of this contender, the first in line first, as of a
// time after the call, and registers them. It is repeated until it succeeds.
func (p *place) searchPlain(ctx context.Context) (names []string, err error) {
	prefix, _ := p.Naming.plain()
	return request.Read(ctx, p.Conn, func() ([]string, error) {
		p.plain.turn <- struct{}{}
		defer func() { <-p.plain.turn }()
		if _, err := p.Conn.Sync(p.Dir); err != nil {
			return nil, err
		}
		children, _, err := request.Children(p.Conn, p.Dir)
		if err != nil {
			return nil, err
		}
		contenders, _, _ := Order(children, p.EndMarker)
		var unknown, found []string
		for _, name := range contenders {
			switch owner := p.plain.owner[name]; {
			case owner == p:
				found = append(found, name)
			case owner == nil && strings.HasPrefix(name, prefix) && len(name) >= len(prefix)+len("0000000000"):
				unknown = append(unknown, name)
			}
		}
		own, err := p.createdHere(unknown)
		if err != nil {
			return nil, err
		}
		for _, name := range own {
			p.plain.owner[strings.Clone(name)] = p
		}
		found, _, _ = Order(append(found, own...), "")
		return found, nil
	})
}

// createdHere returns those of the znodes that the session of now has created with
// the contender's data. Its error is of a single try.
func (p *place) createdHere(names []string) (own []string, err error) {
	const atOnce = 64
	for len(names) > 0 {
		chunk := names[:min(atOnce, len(names))]
		names = names[len(chunk):]
		answers := make([]<-chan request.Answer[bool], len(chunk))
		for i, name := range chunk {
			answers[i] = request.Start(func() (bool, error) { return p.isCreatedHere(name) })
		}
		for i, c := range answers {
			switch a := <-c; {
			case a.Err != nil:
				err = a.Err
			case a.Value:
				own = append(own, chunk[i])
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return own, nil
}

func (p *place) isCreatedHere(name string) (bool, error) {
	exists, stat, err := p.Conn.Exists(p.pathOf(name))
	if err != nil || !exists || stat.EphemeralOwner != p.Conn.SessionID() {
		return false, err
	}
	data, _, err := request.Get(p.Conn, p.pathOf(name))
	if isNoNode(err) {
		return false, nil
	}
	return bytes.Equal(data, p.Data), err
}
