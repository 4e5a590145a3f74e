module example.com/objectstore

go 1.25.0
