package line

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Rename asks a contender that is the first to go on under a name of another
// kind, at the same place in line: a writer that becomes a reader.
type Rename struct {
	To Naming
	// Done, of capacity 1, gets the outcome, nil once the contender has reported
	// its new path. It gets nothing when the place is lost meanwhile.
	Done chan<- error
}

// renaming is a Rename under way.
type renaming struct {
	Rename
	path   string // to be
	prefix string
	stop   context.CancelFunc
	answer <-chan request.Answer[renamed]
}

// renamed is what a rename that was carried out returns.
type renamed struct {
	sent  time.Time    // when the request was sent that has confirmed it
	watch *watch.Watch // on the end of the new znode
}

// startRenaming replaces the own znode by one of the new name, with the same
// GUID and number, in one transaction. There are never none and never two. While it
// is under way the own znode may be either, and neither's absence means anything.
//
// The name is used once. So the transaction can be repeated blindly after a lost
// reply: "node exists" says that it was carried out before, and a missing old
// znode that somebody has deleted it. In another session it fails for that too.
func (p *place) startRenaming(ctx context.Context, r Rename) {
	base := bases[p.Naming]
	i := strings.LastIndex(p.name, base)
	if i < 0 {
		r.Done <- errors.New("the znode is of another kind now")
		return
	}
	prefix, number := p.name[:i]+bases[r.To], p.name[i+len(base):]
	ctx, stop := context.WithCancel(ctx)
	from, to := p.path(), p.pathOf(prefix+number)
	if !slices.Contains(p.prefixes, prefix) { // from a former one that was refused
		p.prefixes = append(p.prefixes, prefix)
	}
	p.renaming = &renaming{r, to, prefix, stop, request.Start(func() (renamed, error) {
		return p.Config.rename(ctx, from, to)
	})}
}

// rename carries a rename out, and sets the watch on the new znode.
func (c *Config) rename(ctx context.Context, from, to string) (renamed, error) {
	sent, err := request.Read(ctx, c.Conn, func() (time.Time, error) {
		sent := time.Now()
		_, err := c.Conn.Multi(
			&zk.CreateRequest{Path: to, Data: c.Data, Acl: c.ACL, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: from, Version: -1},
		)
		if errors.Is(err, zk.ErrNodeExists) {
			err = nil
		}
		return sent, err
	})
	if err != nil {
		return renamed{}, err
	}
	found, err := watch.Read(ctx, c.Conn, watch.Query{Path: to, What: watch.Children})
	return renamed{sent, found.Watch}, err
}

// finishRenaming goes on with the new znode, or with the old one where nothing
// has changed.
func (p *place) finishRenaming(ctx context.Context, a request.Answer[renamed]) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // the answer may be just that, and tells nothing (remove)
	}
	r := p.renaming
	p.renaming = nil
	r.stop()
	switch {
	case isNoNode(a.Err):
		return p.deleted(ctx)
	case a.Err != nil && a.Value.sent.IsZero():
		r.Done <- a.Err // what was refused may have been carried out by an earlier try
		return nil
	}
	// Without the watch the checks tell of the znode's end.
	p.ownWatch = a.Value.watch
	p.prefixes = []string{r.prefix}
	p.setOwn(path.Base(r.path))
	p.sub.Move(p.path(), a.Value.sent)
	state := p.sub.State()
	p.tell(State{Path: p.path(), First: true, Proven: state.Proven, Token: p.czxid, Deadline: p.sub.Deadline})
	r.Done <- nil
	return nil
}
