package ephemeral

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// TakenError means that the path belongs to another client: a znode that does not belong to the caller exists, or
// another user of the process has claimed the path on the same connection.
type TakenError struct {
	Path string
	// Owner is the session of the znode, or 0 if the znode is persistent, and Czxid is its creation zxid. Both are
	// 0 if the znode does not exist.
	Owner, Czxid int64
	// Persistent is set if the znode is persistent, so that it does not end with a session.
	Persistent bool
	// Earlier is set if the caller has created the znode in a session that the connection has lost, and that the
	// servers have not expired yet.
	Earlier bool
}

func (e *TakenError) Error() string {
	switch {
	case e.Persistent:
		return e.Path + " is persistent, and the end of a session does not delete a persistent znode"
	case e.Czxid == 0:
		return e.Path + " is used by another goroutine on this connection"
	case e.Earlier:
		return fmt.Sprintf("%s belongs to the earlier session %#x, which has not expired yet", e.Path, e.Owner)
	}
	return fmt.Sprintf("%s belongs to session %#x", e.Path, e.Owner)
}

// claimedPaths contains a channel for each path that a claim has acquired. The channel is closed when the claim
// releases the path.
var claimedPaths = connection.NewTables[string, chan struct{}]()

// claim is the right to create the znode at a path on a connection, together with the znode. Only one goroutine may
// use a claim.
//
// All users of a connection have the same session, so a znode whose create was not confirmed could belong to any of
// them. Therefore only one of them may hold the right at a time.
type claim struct {
	setup  *recipe.Setup
	sub    *connection.Subscription
	path   string
	static bool // the znode of the claim is persistent
	// keepsParent makes obtain create a missing parent as a persistent znode instead of a container.
	keepsParent bool

	acquired bool
	released <-chan struct{} // closed when the user that holds the right releases it; nil if acquired is true

	// reader reads the Stat of the znode. An ephemeral znode cannot have children, so the watch for children fires
	// only when the znode is deleted.
	reader *watch.Reader

	// sessions contains the sessions in which the servers may have applied a create: an ephemeral znode of one of
	// them belongs to this claim.
	sessions map[int64]bool
	// contents contains the data of creates of a persistent znode that the servers have not confirmed: a znode with
	// such data may belong to this claim.
	contents [][]byte
	// mayExist is set if a znode of this claim may exist.
	mayExist bool
	// removing is set while removeLater runs.
	removing bool
	// occupied is set if the znode that was last read does not belong to this claim.
	occupied bool
	// inFlight receives the reply to a write for which send has not waited, because the context was done.
	inFlight <-chan connection.Answer[*zk.Stat]

	// Fields of the Stat of the znode that obtain has found.
	czxid, owner int64
	version      int32
}

func newClaim(s *recipe.Setup, path string, static bool) *claim {
	sub := s.Subscribe()
	return &claim{
		setup: s, sub: sub, path: path, static: static,
		reader: watch.NewReader(s.Conn, sub, path, watch.Children), sessions: map[int64]bool{},
	}
}

// acquire acquires the right to the path, unless another user holds the right. Then it sets released.
func (c *claim) acquire() {
	if c.acquired {
		return
	}
	paths := claimedPaths.Lock(c.setup.Conn)
	defer paths.Unlock()
	if released := paths.Entries[c.path]; released != nil {
		c.released = released
		return
	}
	paths.Entries[c.path] = make(chan struct{})
	c.acquired, c.released = true, nil
}

// close releases the right to the path. The caller must have removed the znode. If removeLater runs, it releases
// the right later.
func (c *claim) close() {
	c.sub.Close()
	if !c.removing {
		c.release()
	}
}

// release releases the right to the path, and wakes other users who wait for the path.
func (c *claim) release() {
	if !c.acquired {
		return
	}
	paths := claimedPaths.Lock(c.setup.Conn)
	defer paths.Unlock()
	close(paths.Entries[c.path])
	delete(paths.Entries, c.path)
}

// obtain creates the znode and its missing parents. It returns when the znode exists and belongs to this claim and
// to the current session. sent is when the client has sent the create that has written data into the znode. sent is
// zero if the reply was lost, or if a persistent znode existed before. If the znode belongs to another client, the
// error is a TakenError.
//
// After a lost reply, an existing znode may belong to this claim, so obtain repeats the create itself, without
// package connection.
func (c *claim) obtain(ctx context.Context, data []byte) (sent time.Time, err error) {
	c.acquire()
	if err := c.setup.CheckDir(ctx, path.Dir(c.path), c.makeParent); err != nil {
		return sent, err
	}
	var backoff connection.Backoff
	for {
		sent = time.Time{}
		if c.acquired && !c.occupied {
			begin := time.Now()
			err := c.create(ctx, data)
			switch {
			case err == nil:
				sent = begin
			case ctx.Err() != nil:
				return sent, context.Cause(ctx)
			case errors.Is(err, zk.ErrNodeExists):
			case errors.Is(err, zk.ErrNoNode):
				if err := c.makeParent(ctx); err != nil {
					return sent, err
				}
				continue
			case connection.Transient(err):
				if err := backoff.AwaitRetry(ctx, c.setup.Conn, err); err != nil {
					return sent, err
				}
				continue
			default:
				return sent, err
			}
		}
		stat, err := c.read(ctx)
		switch {
		case connection.IsCause(ctx, err):
			return sent, err
		case errors.Is(err, zk.ErrNoNode) && !sent.IsZero():
			c.mayExist = false
			return sent, connection.ErrDeleted
		case errors.Is(err, zk.ErrNoNode) && c.acquired:
			c.occupied = false // another client has deleted the znode after the create
			continue
		case errors.Is(err, zk.ErrNoNode):
			return sent, &TakenError{Path: c.path}
		case err != nil:
			return sent, err
		}
		// If the servers cannot have applied a create of this claim, a znode of the current session belongs to a
		// program that uses the same connection without this package.
		own := c.acquired && (c.static || c.mayExist) && c.covers(stat)
		if c.occupied = !own || !c.static && stat.EphemeralOwner != c.setup.Conn.SessionID(); c.occupied {
			return sent, &TakenError{c.path, stat.EphemeralOwner, stat.Czxid, !connection.IsEphemeral(stat), own}
		}
		c.czxid, c.owner, c.version = stat.Czxid, stat.EphemeralOwner, stat.Version
		c.sessions, c.contents, c.mayExist = map[int64]bool{c.owner: true}, nil, true
		return sent, nil
	}
}

// makeParent creates the missing parents of the znode.
func (c *claim) makeParent(ctx context.Context) error {
	return connection.MakeZnode(ctx, c.setup.Conn, path.Dir(c.path), c.setup.ACL, !c.keepsParent)
}

// create sends one create of the znode, and sets mayExist unless the error shows that the servers have not applied
// the create.
func (c *claim) create(ctx context.Context, data []byte) error {
	flags := int32(zk.FlagEphemeral)
	if c.static {
		flags = zk.FlagPersistent
		c.contents = append(c.contents, data)
	}
	// A request that waits for a connection is sent in the next session if the current session expires, so record
	// both sessions.
	c.addSession()
	_, err := c.send(ctx, func() (*zk.Stat, error) {
		_, err := c.setup.Conn.Create(c.path, data, flags, c.setup.ACL)
		return nil, err
	})
	c.addSession()
	c.mayExist = c.mayExist || err == nil || c.inFlight != nil || connection.Transient(err)
	return err
}

// addSession records that the servers may have applied a create in the current session.
func (c *claim) addSession() {
	if id := c.setup.Conn.SessionID(); id != 0 {
		c.sessions[id] = true
	}
}

// send sends a write and returns its reply. If the context is done first, send returns, and remove waits for the
// reply.
func (c *claim) send(ctx context.Context, write func() (*zk.Stat, error)) (*zk.Stat, error) {
	c.reader.Written()
	answer := connection.Start(write)
	select {
	case a := <-answer:
		return a.Value, a.Err
	case <-ctx.Done():
		c.inFlight = answer
		return nil, context.Cause(ctx)
	}
}

// read reads the Stat of the znode and sets a watch.
func (c *claim) read(ctx context.Context) (*zk.Stat, error) {
	found, err := c.reader.Read(ctx)
	return found.Stat, err
}

// covers reports whether a znode with this Stat can belong to this claim: for a static claim if the znode is
// persistent, otherwise if a session of the claim has created the znode.
func (c *claim) covers(stat *zk.Stat) bool {
	if c.static {
		return !connection.IsEphemeral(stat)
	}
	return c.sessions[stat.EphemeralOwner]
}

// isOwn reports whether the znode with this data and Stat belongs to this claim, so that remove must delete it. A
// persistent znode that obtain has not found belongs to the claim if it contains the data of an unconfirmed create.
func (c *claim) isOwn(data []byte, stat *zk.Stat) bool {
	return c.covers(stat) && (!c.static || stat.Czxid == c.czxid ||
		slices.ContainsFunc(c.contents, func(content []byte) bool { return bytes.Equal(content, data) }))
}

// verify reads the znode that obtain has found. It returns connection.ErrDeleted or connection.ErrSessionExpired if
// this znode is lost.
func (c *claim) verify(ctx context.Context) error {
	stat, err := c.read(ctx)
	missing := errors.Is(err, zk.ErrNoNode)
	switch {
	case err != nil && !missing:
		return err
	case !c.static && c.setup.Conn.SessionID() != c.owner:
		return connection.ErrSessionExpired
	case missing, stat.Czxid != c.czxid:
		c.mayExist = !missing
		return connection.ErrDeleted
	}
	c.version = stat.Version
	return nil
}

// syncAndVerify calls verify after a Sync.
func (c *claim) syncAndVerify(ctx context.Context) error {
	if err := c.setup.Sync(ctx, c.path); err != nil {
		return err
	}
	return c.verify(ctx)
}

// write writes the data of the znode that obtain has found. rejection is the error with which the servers have
// rejected the write. err is the reason why the znode is lost, or the cause of the context.
//
// Each write expects the version that the previous write has returned, so that a write which the servers apply late
// cannot undo a later write. Therefore write reads the version again after a lost reply.
func (c *claim) write(ctx context.Context, data []byte) (rejection, err error) {
	var backoff connection.Backoff
	for {
		if err := c.awaitSession(ctx); err != nil {
			return nil, err
		}
		expected := c.version
		stat, err := c.send(ctx, func() (*zk.Stat, error) { return c.setup.Conn.Set(c.path, data, expected) })
		switch {
		case err == nil:
			c.version = stat.Version
			return nil, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case connection.Transient(err):
			if err := backoff.AwaitRetry(ctx, c.setup.Conn, err); err != nil {
				return nil, err
			}
		case !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode):
			return connection.Refine(c.setup.Conn, err), nil
		}
		if err := c.verify(ctx); err != nil {
			return nil, err
		}
	}
}

// awaitSession blocks until the connection is up in the session of the znode. Without this wait, the client library
// would send the request in a later session, in which the znode at the path may belong to another client.
func (c *claim) awaitSession(ctx context.Context) error {
	for {
		state := c.sub.State()
		switch {
		case state.Closed:
			return connection.ErrConnClosed
		case state.Up && !c.static && state.Session != c.owner:
			return connection.ErrSessionExpired
		case state.Up:
			return nil
		}
		select {
		case <-c.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// remove deletes the znode if it belongs to this claim. remove blocks until the servers have confirmed that the
// znode does not exist, and returns an error if the connection is closed or the servers reject the request. After a
// rejection it starts removeLater.
func (c *claim) remove() error {
	err := connection.Refine(c.setup.Conn, c.tryRemove())
	if connection.IsRejection(err) {
		c.removing = true
		go c.removeLater()
	}
	return err
}

// removeLater deletes a znode whose deletion the servers have rejected, as soon as the servers accept the deletion.
// It gives up when the session of the znode has ended or the connection is closed.
func (c *claim) removeLater() {
	defer c.release()
	owner := c.setup.Conn.SessionID()
	connection.Insist(func() error {
		if !c.static && c.setup.Conn.SessionID() != owner {
			return nil
		}
		return c.tryRemove()
	})
}

// tryRemove removes the znode as remove does, without removeLater. It reads the znode before each delete, because
// another client may have created a znode after a delete whose reply was lost.
func (c *claim) tryRemove() error {
	if c.inFlight != nil {
		<-c.inFlight // the client library answers when the connection is up again or is closed
		c.inFlight = nil
		c.addSession()
	}
	if !c.mayExist {
		return nil
	}
	ctx := context.Background()
	var backoff connection.Backoff
	for {
		data, stat, err := c.readSynced(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && !c.isOwn(data, stat):
			return nil
		case err != nil:
			return err
		case !c.static && stat.EphemeralOwner != c.setup.Conn.SessionID():
			// The servers are going to delete the znode with its session. Do not send a delete, because a delayed
			// delete could delete a znode that another process has created in the meantime.
			if _, err = c.read(ctx); err == nil {
				_, err = c.reader.Wait(ctx, nil)
			}
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			continue
		}
		_, err = connection.Do(ctx, func() (struct{}, error) { return struct{}{}, c.setup.Conn.Delete(c.path, stat.Version) })
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode):
			return nil
		case connection.Transient(err):
			if err := backoff.AwaitRetry(ctx, c.setup.Conn, err); err != nil {
				return err
			}
		case !errors.Is(err, zk.ErrBadVersion):
			return err
		}
	}
}

// readSynced reads the Stat of the znode, and the data of a persistent znode, from a server that has applied all
// writes that the servers had acknowledged before the call.
func (c *claim) readSynced(ctx context.Context) (data []byte, stat *zk.Stat, err error) {
	if err := c.setup.Sync(ctx, c.path); err != nil {
		return nil, nil, err
	}
	if c.static {
		data, stat, err = connection.ReadData(ctx, c.setup.Conn, c.path)
	} else {
		stat, err = connection.ReadStat(ctx, c.setup.Conn, c.path)
	}
	return data, stat, err
}
