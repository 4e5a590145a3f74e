package lock

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Contender describes a client that holds a lock or waits for it.
type Contender struct {
	// Path is the path of the contender's znode.
	Path string
	// Name is the data of the contender's znode, which [WithName] or [NewSingle] sets. It is "__REVOKE__"
	// if another client has requested the release with RequestRelease. It is empty if this connection
	// cannot read the data, because the ACL does not permit it or because the data is too large.
	Name string
	// Token is the creation zxid of the contender's znode, which is the fencing token of its hold. A hold that
	// was downgraded has a smaller token.
	Token int64
	// Holds reports whether the contender holds the lock or is about to learn that it does.
	Holds bool
	// Reads reports whether the contender is a reader of an [RWMutex].
	Reads bool
	// Leases is the number of leases of a [Semaphore] that the contender holds or requests, and 0 for other locks.
	Leases int
}

// Contenders returns the holders and waiting contenders of the lock, in the order of the queue. It sends one
// request to list them and one request for each contender. The server to which the client is connected answers,
// so the result may be slightly out of date.
func (q *lockQueue) Contenders(ctx context.Context) ([]Contender, error) {
	names, err := q.contenderNames(ctx)
	var all []Contender
	for i, name := range names {
		all = append(all, Contender{Path: path.Join(q.setup.Path, name), Holds: isHolder(names, i), Reads: contender.Reads(name)})
	}
	if err == nil {
		all, err = q.readNamesAndTokens(ctx, all)
	}
	return all, q.setup.Fail("list the contenders of", q.setup.Path, err)
}

// contenderNames returns the names of the contenders' znodes, starting with the head of the queue.
func (q *lockQueue) contenderNames(ctx context.Context) ([]string, error) {
	children, err := connection.ListExisting(ctx, q.setup.Conn, q.setup.Path)
	if err != nil {
		return nil, err
	}
	names, _, _ := contender.Order(children, "")
	names, _, err = queue.Contenders(ctx, q.setup.Conn, q.setup.Path, names)
	return names, err
}

// readNamesAndTokens reads the names and tokens of contenders, with one request for each. It omits contenders
// whose znodes do not exist any more.
func (q *lockQueue) readNamesAndTokens(ctx context.Context, all []Contender) ([]Contender, error) {
	paths := make([]string, len(all))
	for i, c := range all {
		paths[i] = c.Path
	}
	found, err := connection.Each(paths, connection.InFlight, func(i int, path string) (Contender, error) {
		data, stat, err := connection.ReadExisting(ctx, q.setup.Conn, path)
		if stat == nil {
			return Contender{}, err
		}
		c := all[i]
		c.Name, c.Token = string(data), stat.Czxid
		return c, nil
	})
	return slices.DeleteFunc(found, func(c Contender) bool { return c.Path == "" }), err
}

// isHolder reports whether the contender names[i] holds the lock, because it is the head of the queue, or a
// reader without an earlier writer. While a writer of Curator downgrades, it has two znodes with the same
// number.
func isHolder(names []string, i int) bool {
	number := func(name string) string { return name[max(0, len(name)-10):] }
	reads := contender.Reads(names[i])
	return !slices.ContainsFunc(names[:i], func(ahead string) bool {
		return number(ahead) != number(names[i]) && !(reads && contender.Reads(ahead))
	})
}

// releaseRequest is the data that requests the release of a lock. Curator's Revoker writes it to the holder's
// znode.
const releaseRequest = "__REVOKE__"

// RequestRelease requests that contender c releases this lock as soon as c holds the lock. RequestRelease does
// not wait for the release, and does not end the hold: c may ignore the request; see [Hold.ReleaseRequested].
// As in Curator's protocol, the request is the data "__REVOKE__", which RequestRelease writes to the znode of
// c. RequestRelease returns [recipes.ErrNotHeld] if the znode of c does not exist any more.
func (q *lockQueue) RequestRelease(ctx context.Context, c Contender) error {
	return q.requestRelease(ctx, q.setup.Path, c)
}

// requestRelease implements RequestRelease for a lock whose holders have their znodes in dir.
func (q *lockQueue) requestRelease(ctx context.Context, dir string, c Contender) error {
	if path.Dir(c.Path) != dir {
		return fmt.Errorf("%w: %s is not a contender of %s", recipes.ErrInvalid, c.Path, q.setup.Path)
	}
	// Retrying is safe: a second write changes nothing, and the name of c's znode is never used for another znode.
	err := connection.Retry(ctx, q.setup.Conn, func() error {
		_, err := q.setup.Conn.Set(c.Path, []byte(releaseRequest), -1)
		return err
	})
	if connection.IsNoNode(ctx, err) {
		err = recipes.ErrNotHeld
	}
	return q.setup.Fail("request the release of", c.Path, err)
}
