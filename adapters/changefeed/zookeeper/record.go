package zookeeper

import (
	"fmt"
	"net/url"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
)

// decode returns the record in a znode, given its data and Stat. stat is nil if the znode does not
// exist. If the znode has no epoch znode, decode returns the record together with ErrNoRecord.
func (s *Store) decode(data []byte, stat *zk.Stat) (changefeed.Record, error) {
	if stat == nil {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	r, err := codec.Decode(data)
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("changefeed/zookeeper: %s: %w", s.path, err)
	}
	r.Time, r.Version = timeAndVersion(stat)
	if stat.NumChildren == 0 {
		return r, changefeed.ErrNoRecord
	}
	return r, nil
}

// timeAndVersion returns the time and the version of a record, given the Stat of its znode.
func timeAndVersion(stat *zk.Stat) (time.Time, string) {
	return time.UnixMilli(stat.Mtime), fmt.Sprintf("%x.%d", stat.Czxid, stat.Version)
}

// parseVersion returns the creation zxid and the version of the znode that a record's version
// names.
func parseVersion(v string) (czxid int64, version int32, err error) {
	_, err = fmt.Sscanf(v, "%x.%d", &czxid, &version)
	return czxid, version, err
}

// epochNode returns the path of the znode that names the epoch of the record.
func (s *Store) epochNode(epoch string) string { return s.path + "/epoch-" + url.PathEscape(epoch) }

// checkEpoch returns the operation that fails unless the record has the epoch.
func (s *Store) checkEpoch(epoch string) *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: s.epochNode(epoch), Version: -1}
}

// create returns the operation that creates a znode.
func (s *Store) create(node string, data []byte) *zk.CreateRequest {
	return &zk.CreateRequest{Path: node, Data: data, Acl: s.acl}
}
