package queue

import (
	"context"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// inFlight is how many requests are sent at the same time, so that a long queue does not take
// as many round trips.
const inFlight = 64

// Contenders returns those of names, which contender.Order takes for contenders by their names,
// that are contenders, in the same order, and the others. A znode that does not exist is in
// neither. It sends a request for each name that is not contender.Recognized.
func Contenders(ctx context.Context, conn *zk.Conn, dir string, names []string) (contenders, others []string, err error) {
	kinds, err := parallel(names, func(name string) (kind, error) {
		if contender.Recognized(name) {
			return isContender, nil
		}
		stat, err := connection.Read(ctx, conn, func() (*zk.Stat, error) { return statOf(conn, path.Join(dir, name)) })
		switch {
		case isNoNode(err):
			return doesNotExist, nil
		case err != nil:
			return doesNotExist, err
		case connection.IsEphemeral(stat):
			return isContender, nil
		}
		return isOther, nil
	})
	if err != nil {
		return nil, nil, err
	}
	for i, name := range names {
		switch kinds[i] {
		case isContender:
			contenders = append(contenders, name)
		case isOther:
			others = append(others, name)
		}
	}
	return contenders, others, nil
}

// FirstContender returns the first of names that is a contender, or "" if none is. others are those
// that it has found not to be contenders. If the first of names is a contender, it reads only that
// znode. Otherwise it reads more and more of them at the same time.
func FirstContender(ctx context.Context, conn *zk.Conn, dir string, names []string) (first string, others []string, err error) {
	for n := 1; len(names) > 0; n = min(2*n, inFlight) {
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

// kind classifies a child that is named like a contender.
type kind uint8

const (
	doesNotExist kind = iota
	isContender
	isOther
)

// filter returns those of names for which f returns true.
func filter(names []string, f func(name string) (bool, error)) ([]string, error) {
	results, err := parallel(names, f)
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

// parallel calls f for all names, for several at the same time, and returns the results in
// their order, or the last error.
func parallel[T any](names []string, f func(name string) (T, error)) (results []T, err error) {
	for chunk := range slices.Chunk(names, inFlight) {
		answers := make([]<-chan connection.Answer[T], len(chunk))
		for i, name := range chunk {
			answers[i] = connection.Start(func() (T, error) { return f(name) })
		}
		for _, c := range answers {
			a := <-c
			if a.Err != nil {
				err = a.Err
			}
			results = append(results, a.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}
