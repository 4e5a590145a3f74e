package group

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/counter"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// Partitioner divides a set of parts among the members of a group. It has no state of
// its own, and may be used by any number of goroutines.
type Partitioner struct {
	at    *setup.Setup
	group *Group
	parts *counter.Value[[]string]
}

// NewPartitioner makes the partitioner at path. It sends no request. The znodes are this
// library's own; [recipes.WithLayout] changes the names of the locks only. Errors:
// [recipes.ErrNilConn], [recipes.ErrInvalidPath], [recipes.ErrInvalidOption].
func NewPartitioner(conn *zk.Conn, path string, opts ...recipes.Option) (*Partitioner, error) {
	s, err := setup.New(conn, path, opts)
	if err != nil {
		return nil, err
	}
	group, err := NewGroup(conn, path+"/members", append(slices.Clone(opts), recipes.WithLayout(recipes.Curator))...)
	if err != nil {
		return nil, err
	}
	parts, err := counter.NewValue(conn, path+"/parts", counter.JSON[[]string](), opts...)
	if err != nil {
		return nil, err
	}
	return &Partitioner{s, group, parts}, nil
}

// maxParts bounds the names of all parts together, in bytes of their JSON, which is in
// one znode.
const maxParts = 512 << 10

// Parts reads which parts there are, in order.
func (p *Partitioner) Parts(ctx context.Context) ([]string, error) {
	parts, _, err := p.parts.Get(ctx)
	return parts, setup.Fail("read parts of", p.at.Path, err)
}

// SetParts says which parts there are, to all members. It may be called at any time, by
// members and others. Names are any text but the empty one; all of them together may
// have half a megabyte as JSON, or it is [recipes.ErrInvalidOption]. Other errors are those of
// [counter.Value.Set].
func (p *Partitioner) SetParts(ctx context.Context, parts []string) error {
	_, err := p.UpdateParts(ctx, func(was []string) ([]string, error) { return parts, nil })
	return err
}

// UpdateParts replaces the parts by what f makes of them, and returns that, in order and
// each once. f is called again when somebody else has changed them meanwhile; its error
// ends UpdateParts, wrapped.
func (p *Partitioner) UpdateParts(ctx context.Context, f func(parts []string) ([]string, error)) ([]string, error) {
	parts, err := p.parts.Update(ctx, func(was []string) ([]string, error) {
		is, err := f(slices.Clone(was))
		if err != nil {
			return nil, err
		}
		is = slices.Clone(is)
		slices.Sort(is)
		is = slices.Compact(is)
		text, _ := json.Marshal(is) // strings
		if len(text) > maxParts || len(is) > 0 && is[0] == "" {
			return nil, fmt.Errorf("%w: %d parts, %d bytes; or an empty name", recipes.ErrInvalidOption, len(is), len(text))
		}
		return is, nil
	})
	return parts, setup.Fail("set parts of", p.at.Path, err)
}

// Owner is the member to whom a part is assigned, of those there are: the one that gets
// the greatest number when hashed together with the part. When a member comes, only
// parts that become its own move; when one goes, only its own do. It is "" where there
// are no members.
func Owner(part string, members []string) string {
	owner, most := "", uint64(0)
	for _, m := range members {
		n := weigh(m, part)
		if owner == "" || n > most || n == most && m < owner {
			owner, most = m, n
		}
	}
	return owner
}

// weigh is a hash that all members must agree on: FNV-1a, and a finish that lets every
// bit of the input change every bit of the result.
func weigh(member, part string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d:%s%s", len(member), member, part)
	n := h.Sum64()
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// lockPath is where a part's lock is.
func (p *Partitioner) lockPath(part string) string {
	name := url.PathEscape(part)
	if name == "." || name == ".." {
		name = strings.ReplaceAll(name, ".", "%2E")
	}
	return p.at.Path + "/locks/" + name
}

// Part is a part that was granted to this member: a lock on it is held. Token, Done,
// Deadline, Context and Multi are the lock's. It must be released, also when it is lost.
type Part struct {
	*lock.Hold
	name    string
	wanted  chan struct{}
	revoked atomic.Bool
}

// Name is the part's.
func (p *Part) Name() string { return p.name }

// Wanted is closed when the part is to be given back: it is another member's now, or is
// no part any more, or this member leaves. Whoever uses the part should finish and call
// Release; otherwise it is released when the grace is over.
func (p *Part) Wanted() <-chan struct{} { return p.wanted }

// Err is nil while the part is held, and afterwards why it is not: [ErrRevoked] when it
// was not given back in time, or what [lock.Hold.Err] says.
func (p *Part) Err() error {
	err := p.Hold.Err()
	if err != nil && p.revoked.Load() {
		return fmt.Errorf("%w: %w", ErrRevoked, err)
	}
	return err
}

// Join joins as the member id and returns when others can see it. grace is how long a
// part may be kept after it is wanted elsewhere; 0 leaves no time at all. Errors are
// those of [Group.Join].
func (p *Partitioner) Join(ctx context.Context, id string, grace time.Duration) (*Share, error) {
	if grace < 0 {
		return nil, fmt.Errorf("%w: a grace of %v", recipes.ErrInvalidOption, grace)
	}
	member, err := p.group.Join(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	return newShare(p, member, grace), nil
}
