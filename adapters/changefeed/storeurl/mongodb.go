//go:build !no_mongodb

package storeurl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

func init() { openers["mongodb"], openers["mongodb+srv"] = openMongoDB, openMongoDB }

// closeLimit bounds the end of a driver that says goodbye to its server.
const closeLimit = 2 * time.Second

func openMongoDB(_ context.Context, a address) (*Opened, error) {
	collection := a.take("collection")
	database := strings.Trim(a.Path, "/")
	if database == "" {
		return nil, fmt.Errorf("%w: address of the store: no database: expected mongodb://host/database", leaderelection.ErrInvalidOption)
	}
	cfg := options.Client().ApplyURI(a.rest())
	if a.TLS != nil {
		cfg.SetTLSConfig(a.TLS)
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
	}
	client, err := mongo.Connect(cfg)
	if err != nil {
		return nil, err
	}
	return &Opened{
		New: func() (changefeed.Store, error) {
			return mongodb.New(client.Database(database).Collection(collection), a.Election, mongodb.WithRisk(a.risks...))
		},
		Close: func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			_ = client.Disconnect(ctx)
		},
	}, nil
}
