module qbus/perf/jobloads

go 1.26.0
