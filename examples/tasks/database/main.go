// Command database runs a job on one of its replicas, which share a PostgreSQL database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/elector"
)

func main() {
	db := flag.String("db", "postgres://localhost/app", "address of the database")
	name := flag.String("name", "", "name of this replica, which others see")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *db, *name); err != nil {
		log.Fatal("ended: ", err) // the supervisor starts it again
	}
}

// run is one replica. It works while it is the leader.
func run(ctx context.Context, db, name string) error {
	pool, err := pgxpool.New(ctx, db)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.NewStore(pool, pgx.Identifier{"elections"}, "report") // table and election
	if err != nil {
		return err
	}
	defer store.Close()
	candidate, err := changefeed.NewElection(store, changefeed.WithID(name))
	if err != nil {
		return err
	}
	return elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
		log.Print(name, " leads with token ", l.Token())
		if err := begin(ctx, pool, l); err != nil {
			return err
		}
		for {
			if err := save(ctx, pool, l, time.Now().String()); err != nil {
				log.Print("not saved: ", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done(): // before another replica can lead
				return nil
			}
		}
	})
}

// begin creates the table, and registers the token: then the database rejects the writes of former
// leaders. A leader that writes what it has read must begin to read after that. The advisory lock waits
// for the same statements of a former leader, which the server may still execute.
func begin(ctx context.Context, pool *pgxpool.Pool, l *leaderelection.Leadership) error {
	_, err := pool.Exec(ctx, `SELECT pg_advisory_xact_lock(1);
		CREATE TABLE IF NOT EXISTS report (id int PRIMARY KEY, text text, token bigint);
		INSERT INTO report VALUES (1, '', 0) ON CONFLICT DO NOTHING`)
	if err != nil {
		return fmt.Errorf("create the report: %w", err)
	}
	return requireRow(pool.Exec(ctx, "UPDATE report SET token = $1 WHERE id = 1 AND token <= $1", l.Token()))
}

// save writes text, unless a later leader has registered its token.
func save(ctx context.Context, pool *pgxpool.Pool, l *leaderelection.Leadership, text string) error {
	return requireRow(pool.Exec(ctx, "UPDATE report SET text = $2 WHERE id = 1 AND token = $1", l.Token(), text))
}

var errLaterLeader = errors.New("a later leader has registered its token")

// requireRow returns an error if a statement has failed, or has changed no row.
func requireRow(tag pgconn.CommandTag, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("write the report: %w", err)
	case tag.RowsAffected() == 0:
		return errLaterLeader
	}
	return nil
}
