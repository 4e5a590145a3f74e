package queue

import (
	"context"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Contenders returns those of names, which contender.Order takes for contenders by their names,
// that are contenders, in the same order, and the others. A znode that does not exist is in
// neither. It sends a request for each name that is not contender.Recognized.
func Contenders(ctx context.Context, conn *zk.Conn, dir string, names []string) (contenders, others []string, err error) {
	stats, err := connection.Each(names, connection.InFlight, func(_ int, name string) (*zk.Stat, error) {
		if contender.Recognized(name) {
			return nil, nil
		}
		stat, err := connection.Read(ctx, conn, func() (*zk.Stat, error) { return statOf(conn, path.Join(dir, name)) })
		if isNoNode(err) {
			return nil, nil
		}
		return stat, err
	})
	if err != nil {
		return nil, nil, err
	}
	for i, name := range names {
		switch stat := stats[i]; {
		case contender.Recognized(name), stat != nil && connection.IsEphemeral(stat):
			contenders = append(contenders, name)
		case stat != nil:
			others = append(others, name)
		}
	}
	return contenders, others, nil
}

// FirstContender returns the first of names that is a contender, or "" if none is. others are those
// that it has found not to be contenders. If the first of names is a contender, it reads only that
// znode. Otherwise it reads more and more of them at the same time.
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

// filter returns those of names for which f returns true.
func filter(names []string, f func(name string) (bool, error)) ([]string, error) {
	results, err := connection.Each(names, connection.InFlight, func(_ int, name string) (bool, error) { return f(name) })
	if err != nil {
		return nil, err
	}
	var found []string
	for i, name := range names {
		if results[i] {
			found = append(found, name)
		}
	}
	return found, nil
}
