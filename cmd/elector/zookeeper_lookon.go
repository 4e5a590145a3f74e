package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

func (z *zookeeper) list(ctx context.Context) ([]place, error) {
	if err := z.ready(ctx); err != nil {
		return nil, err
	}
	infos, err := leaderelection.Candidates(z.conn, z.election, append(z.options(), leaderelection.WithContext(ctx))...)
	if err != nil {
		return nil, err
	}
	places := []place{}
	for _, info := range infos {
		p, err := z.place(ctx, info)
		if err != nil {
			return nil, err
		}
		if p != nil {
			places = append(places, *p)
		}
	}
	return places, nil
}

// place adds when it joined; it is nil for a candidate that has left.
func (z *zookeeper) place(ctx context.Context, info leaderelection.CandidateInfo) (*place, error) {
	return request.Read(ctx, z.conn, func() (*place, error) {
		there, stat, err := z.conn.Exists(info.ID)
		if err != nil || !there {
			return nil, err
		}
		return &place{
			Name: info.Name, Value: info.Value, ID: info.ID, Token: info.Token, Joined: time.UnixMilli(stat.Ctime).UTC(),
			Session: fmt.Sprintf("%#x", uint64(stat.EphemeralOwner)),
		}, nil
	})
}

func (z *zookeeper) watch(ctx context.Context) (<-chan observation, error) {
	if err := z.ready(ctx); err != nil {
		return nil, err
	}
	in, err := leaderelection.Observe(ctx, z.conn, z.election, z.options()...)
	if err != nil {
		return nil, err
	}
	return observe(ctx, in, func(leader leaderelection.CandidateInfo) place {
		if p, _ := z.place(ctx, leader); p != nil {
			return *p
		}
		// It has left, or cannot be asked.
		return placeOf(leader)
	}), nil
}

// end ends the election, which must exist, without taking part.
func (z *zookeeper) end(ctx context.Context) error {
	if err := z.ready(ctx); err != nil {
		return err
	}
	e, err := leaderelection.NewElection(z.conn, z.election, append(z.options(), leaderelection.WithContext(ctx))...)
	if err != nil {
		return err
	}
	return e.EndElection()
}

// remove deletes the election, if it exists.
func (z *zookeeper) remove(ctx context.Context) error {
	if err := z.ready(ctx); err != nil {
		return err
	}
	return leaderelection.DeleteElection(z.conn, z.election, append(z.options(), leaderelection.WithContext(ctx))...)
}
