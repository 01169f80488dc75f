from poetc.schedule.search import Search
def poet(search: Search) -> bool:
    raise NotImplementedError
