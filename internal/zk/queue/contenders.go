package queue

import (
	"context"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Contenders divides names, all of which contender.Order accepts as names of contenders, into the names of contenders
// and the names of other znodes, and keeps their order. It omits znodes that do not exist. Contenders sends a request
// for each name for which contender.Recognized returns false, because only the znode shows whether it belongs to a
// contender.
func Contenders(ctx context.Context, conn *zk.Conn, dir string, names []string) (contenders, others []string, err error) {
	stats, err := connection.Each(names, connection.InFlight, func(_ int, name string) (*zk.Stat, error) {
		if contender.Recognized(name) {
			return nil, nil
		}
		return connection.ReadStat(ctx, conn, path.Join(dir, name))
	})
	if err != nil {
		return nil, nil, err
	}
	for i, name := range names {
		switch stat := stats[i]; {
		case contender.Recognized(name), connection.IsEphemeral(stat):
			contenders = append(contenders, name)
		case stat.Czxid != 0:
			others = append(others, name)
		}
	}
	return contenders, others, nil
}

// FirstContender returns the first of names that is the name of a contender, or "". others contains the names before
// it, which belong to other znodes. FirstContender first reads one znode, which is enough in most cases, and then
// twice as many znodes at the same time in each step.
func FirstContender(ctx context.Context, conn *zk.Conn, dir string, names []string) (first string, others []string, err error) {
	for n := 1; len(names) > 0; n = min(2*n, connection.InFlight) {
		n = min(n, len(names))
		contenders, foreign, err := Contenders(ctx, conn, dir, names[:n])
		if err != nil {
			return "", nil, err
		}
		others = append(others, foreign...)
		if len(contenders) > 0 {
			return contenders[0], others, nil
		}
		names = names[n:]
	}
	return "", others, nil
}
