// Command database runs a job on one of its replicas, which share a PostgreSQL database.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/sqlfence"
)

func main() {
	db := flag.String("db", "postgres://localhost/app?idle_in_transaction_session_timeout=3000&lock_timeout=10000", "address of the database")
	host, _ := os.Hostname()
	name := flag.String("name", host, "name of this replica, which others see; each replica has another one")
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
	fence, err := sqlfence.NewFence(sqlfence.PostgreSQL, "report")
	if err != nil {
		return err
	}
	candidate, err := changefeed.NewElection(store, changefeed.WithID(name))
	if err != nil {
		return err
	}
	return elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
		log.Print(name, " leads with token ", l.Token())
		for {
			if total, err := add(ctx, pool, fence, l); err != nil {
				log.Print("not confirmed: ", err)
			} else {
				log.Print("total ", total)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done(): // before another replica can lead
				log.Print(name, " stops: ", context.Cause(ctx))
				return nil
			}
		}
	})
}

// add reads the total, and writes it plus one. If a later leader has begun, it fails. Unless the commit was sent
// before, it changes nothing then.
func add(ctx context.Context, pool *pgxpool.Pool, fence *sqlfence.Fence, l *leaderelection.Leadership) (total int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := fence.Guard(ctx, postgres.FenceTx(tx), l); err != nil { // before the first read
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT total FROM account WHERE id = 1").Scan(&total); err != nil {
			return err
		}
		total++
		_, err := tx.Exec(ctx, "UPDATE account SET total = $1 WHERE id = 1", total)
		return err
	})
	return total, err
}
