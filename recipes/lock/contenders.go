package lock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Contender is what everybody can see of one who has a lock or waits for it.
type Contender struct {
	Path string // of its znode
	// Name is its znode's data: see [WithName]. It is "__REVOKE__" of one that was
	// asked to release.
	Name string
	// Token is its znode's creation zxid: the fencing token of its grant, unless that
	// was downgraded, whose token is smaller.
	Token int64
	Holds bool // it has the lock, or is about to learn that it has
	Reads bool // it is a reader of an [RWMutex]
}

// Contenders lists who has the lock and who waits for it, in the order of the line.
// It costs a request for the listing and one for each contender. The answer is that
// of the server at hand, which may be a moment behind.
func (q *queue) Contenders(ctx context.Context) ([]Contender, error) {
	names, err := q.names(ctx)
	if err != nil {
		return nil, setup.Fail("contenders", q.at.Path, err)
	}
	// Side by side, or a long line would take as many round trips.
	type answer = request.Answer[*Contender]
	var all []Contender
	i := 0
	for chunk := range slices.Chunk(names, 64) {
		var answers []<-chan answer
		for _, name := range chunk {
			reads, holds := line.Reads(name), holds(names, i)
			i++
			answers = append(answers, request.Start(func() (*Contender, error) { return q.describe(ctx, name, holds, reads) }))
		}
		for _, c := range answers {
			a := <-c
			if a.Err != nil && err == nil {
				err = a.Err
			}
			if a.Value != nil {
				all = append(all, *a.Value)
			}
		}
		if err != nil {
			return nil, setup.Fail("contenders", q.at.Path, err)
		}
	}
	return all, nil
}

// names lists the znodes of the contenders, first in line first.
func (q *queue) names(ctx context.Context) ([]string, error) {
	children, err := request.Read(ctx, q.at.Conn, func() ([]string, error) {
		children, _, err := request.Children(q.at.Conn, q.at.Path)
		return children, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, _, _ := line.Order(children, "")
	names, _, err = line.Contenders(ctx, q.at.Conn, q.at.Path, names)
	return names, err
}

// describe reads a contender's znode; nil when it is gone.
func (q *queue) describe(ctx context.Context, name string, holds, reads bool) (*Contender, error) {
	full := path.Join(q.at.Path, name)
	c, err := request.Read(ctx, q.at.Conn, func() (*Contender, error) {
		data, stat, err := request.Get(q.at.Conn, full)
		if err != nil {
			return nil, err
		}
		return &Contender{full, string(data), stat.Czxid, holds, reads}, nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return c, err
}

// holds reports whether it is the turn of the i-th in line: of the first, and of a
// reader without a writer ahead. Curator's holder that downgrades has two znodes of
// one number for a while.
func holds(names []string, i int) bool {
	number := func(name string) string { return name[max(0, len(name)-10):] }
	reads := line.Reads(names[i])
	return !slices.ContainsFunc(names[:i], func(ahead string) bool {
		return number(ahead) != number(names[i]) && !(reads && line.Reads(ahead))
	})
}

// revokeRequest is what Curator's Revoker writes.
const revokeRequest = "__REVOKE__"

// Revoke asks a contender of this lock to release it once it has it, and does not
// wait for that. It is Curator's protocol: c's znode gets the data "__REVOKE__",
// and it is up to c whether it looks there ([Hold.Revoked]) and what it does then.
// The error is [ErrNotHeld] where c has gone.
func (q *queue) Revoke(ctx context.Context, c Contender) error {
	if path.Dir(c.Path) != q.at.Path {
		return fmt.Errorf("%w: %s is no contender for %s", recipes.ErrInvalidOption, c.Path, q.at.Path)
	}
	// Written twice it says the same, and no other znode ever has this name.
	err := request.Retry(ctx, q.at.Conn, func() error {
		_, err := q.at.Conn.Set(c.Path, []byte(revokeRequest), -1)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		err = ErrNotHeld
	}
	return setup.Fail("revoke", c.Path, err)
}
